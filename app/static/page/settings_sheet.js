/** The sheet with the settings. */

import { chips } from "./chips.js";
import { page } from "./elements.js";
import { detects, hotwordsTrouble } from "./options.js";
import { change, onChange, settings } from "./settings.js";
import { opens } from "./sheets.js";
import { endCheck, fillMicrophones } from "./microphone_check.js";

const HOTWORDS_NOTE = page.hotwordsNote.textContent;
const themes = [...document.querySelectorAll("input[name=theme]")];
/** The codes of the languages of the model, and of those that the server translates to. */
let offered = { languages: [], translations: [] };
let onDone = () => {};

/** Offers these languages, by code. */
export function offerChoices(languages, translations) {
  offered = { languages, translations };
  if (!settings.translate.every((code) => translations.includes(code))) {
    change({ translate: settings.translate.filter((code) => translations.includes(code)) });
  }
  if (!settings.candidates.every((code) => languages.includes(code))) {
    change({ candidates: settings.candidates.filter((code) => languages.includes(code)) });
  }
}

/** `listener` is called when the sheet is closed: changes apply then. */
export function whenSettled(listener) {
  onDone = listener;
}

opens(page.settings, page.settingsSheet, fill);
onChange(showSize);

page.settingsSheet.addEventListener("close", () => {
  endCheck();
  onDone();
});
page.microphone.addEventListener("change", () => {
  endCheck();
  change({ microphone: page.microphone.value });
});
for (const [box, name] of [
  [page.lock, "lock"],
  [page.speakers, "speakers"],
  [page.showTimes, "showTimes"],
  [page.keep, "keep"],
  [page.useShortcuts, "useShortcuts"],
]) {
  box.addEventListener("change", () => change({ [name]: box.checked }));
}
page.hotwords.addEventListener("input", () => {
  const trouble = hotwordsTrouble(page.hotwords.value);
  page.hotwords.setAttribute("aria-invalid", String(trouble !== undefined));
  page.hotwordsNote.textContent = trouble ?? HOTWORDS_NOTE;
  page.hotwordsNote.classList.toggle("wrong", trouble !== undefined);
  if (trouble === undefined) {
    change({ hotwords: page.hotwords.value });
  }
});
page.size.addEventListener("input", () => change({ size: Number(page.size.value) }));
for (const radio of themes) {
  radio.addEventListener("change", () => change({ theme: radio.value }));
}

function fill() {
  void fillMicrophones();
  page.lock.checked = settings.lock;
  page.speakers.checked = settings.speakers;
  page.showTimes.checked = settings.showTimes;
  page.keep.checked = settings.keep;
  page.useShortcuts.checked = settings.useShortcuts;
  page.hotwords.value = settings.hotwords;
  page.hotwords.dispatchEvent(new Event("input"));
  themes.forEach((radio) => {
    radio.checked = radio.value === settings.theme;
  });
  showSize();
  page.detection.hidden = !detects();
  chips(page.candidates, {
    legend: "Languages that may be spoken",
    empty: "All that the model knows",
    codes: offered.languages,
    chosen: settings.candidates,
    onChange: (candidates) => change({ candidates }),
  });
  page.translations.hidden = offered.translations.length === 0;
  chips(page.translations, {
    legend: "Translate to",
    empty: "No translation",
    codes: offered.translations,
    chosen: settings.translate,
    onChange: (translate) => change({ translate }),
  });
}

function showSize() {
  page.size.value = String(settings.size);
  page.sizeText.textContent = `${settings.size} %`;
}
