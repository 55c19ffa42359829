/**
 * The captions page: text for what is said into a microphone, in a tab or in a file. The JavaScript client in ./tutti/
 * handles the sessions and their messages; each module in ./page/ has one job, and this one connects them.
 */

import "./page/code.js";
import { page } from "./page/elements.js";
import { startFile, stopFile } from "./page/file_run.js";
import { onFile } from "./page/files.js";
import { keepPage } from "./page/install.js";
import "./page/keeper.js";
import { onKey } from "./page/keys.js";
import "./page/line_actions.js";
import { hideMessage } from "./page/messages.js";
import { showModel } from "./page/model.js";
import { applyOptions, startLive, startSample, stopLive, togglePause } from "./page/run.js";
import { whenCleared } from "./page/save_sheet.js";
import "./page/scrolling.js";
import { change, settings } from "./page/settings.js";
import { offerChoices, whenSettled } from "./page/settings_sheet.js";
import { offerRooms, whenShared } from "./page/share.js";
import "./page/shortcuts.js";
import { canShareTab } from "./page/sources.js";
import { isRunning, show, state } from "./page/status.js";
import { nowS, setNow } from "./page/timeline.js";
import { onTranscript } from "./page/transcript.js";

/** What was started last, for a second attempt with an API key. */
let again = startLive;

page.toggle.addEventListener("click", () => {
  if (state === "file") {
    stopFile();
  } else if (isRunning()) {
    stopLive();
  } else if (settings.source === "file") {
    page.file.click();
  } else {
    again = startLive;
    void startLive();
  }
});
page.pause.addEventListener("click", togglePause);
page.playSample.addEventListener("click", () => {
  // The button is gone with the first words.
  page.toggle.focus();
  again = startSample;
  void startSample();
});

onFile((file) => {
  again = () => startFile(file);
  void startFile(file);
});

onKey(() => {
  if (!isRunning()) {
    // The form of the key goes.
    page.toggle.focus();
    void again();
  }
});

if (!canShareTab) {
  page.source.querySelector("[value=tab]").remove();
}
page.source.value = canShareTab || settings.source !== "tab" ? settings.source : "microphone";
page.source.addEventListener("change", () => change({ source: page.source.value }));
page.language.addEventListener("change", () => {
  change({ language: page.language.value });
  applyOptions();
});
whenSettled(applyOptions);
whenShared(applyOptions);

whenCleared(() => {
  if (!isRunning()) {
    setNow(0);
    show("idle");
    hideMessage();
  }
});
onTranscript((what, entry) => {
  // Kept text, and text that was cleared by mistake, come back with their times.
  if (what !== "clear" && !isRunning()) {
    setNow(Math.max(nowS, entry.end_s));
  }
});

void showModel().then((model) => {
  offerChoices(model?.languages.map(({ code }) => code) ?? [], model?.translations ?? []);
  offerRooms(model?.rooms === true);
  // A session may have begun before the language of the last visit could be chosen.
  applyOptions();
});
void keepPage();
