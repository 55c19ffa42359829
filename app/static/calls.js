/**
 * The page for the records of calls. It reads a file, or gets a record from the server: of a recording, or of a job. Each
 * module in ./calls/ has one job, and this one connects them.
 */

import { ask, isAsking, say, showUpload, tryTo } from "./calls/asking.js";
import { page } from "./calls/elements.js";
import { showFigures } from "./calls/figures.js";
import { followTurns } from "./calls/follow.js";
import { notice } from "./calls/messages.js";
import { isRecord, onFiles } from "./calls/opening.js";
import { addRecording, pause, showPlayer } from "./calls/player.js";
import { parseRecord } from "./calls/record.js";
import { offerDownload } from "./calls/save_sheet.js";
import { clearSearch } from "./calls/search.js";
import { jobResult, languages, transcribe } from "./calls/server.js";
import { sidesOf } from "./calls/sides.js";
import { useShortcutsFor } from "./calls/shortcuts.js";
import { showTimeline } from "./calls/timeline.js";
import { showTurns } from "./calls/turns.js";
import { hideMessage } from "./page/messages.js";
import { keepShell } from "./page/shell.js";

/** The record that was opened last; undefined: none. */
let record;
/** A recording that was given before its record. */
let recording;
/** Resolves when it is known whether the channels of this recording are the sides of a call. */
let sides;
/** The names that the page has filled in; undefined: none. */
let filledIn;

onFiles((files) => {
  const records = files.filter(isRecord);
  const [file, ...others] = files.filter((each) => !isRecord(each));
  if (isAsking()) {
    say("Press Cancel before you open another file.");
  } else if (records.length > 1 || others.length > 0) {
    say(`Expected one record and one recording at most, got ${files.map(({ name }) => name).join(", ")}.`);
  } else if (records.length === 1) {
    void openFile(records[0], file ?? (page.record.hidden ? recording : undefined));
  } else if (page.record.hidden) {
    offerToTranscribe(file);
  } else {
    notice("");
    addRecording(file, record);
  }
});

function openFile(file, itsRecording) {
  return tryTo(file.name, async () => show(await file.text(), nameOf(file), itsRecording));
}

/** Shows the record in this text. Throws a `BadRecord`, and leaves what is shown as it is then. */
function show(text, title, itsRecording) {
  record = parseRecord(text);
  showFigures(record, title);
  showTimeline(record);
  showTurns(record);
  followTurns(record);
  clearSearch();
  offerDownload(record, title);
  useShortcutsFor(record);
  showPlayer(record);
  offerToTranscribe(undefined);
  notice("");
  showView("open");
  if (itsRecording !== undefined) {
    addRecording(itsRecording, record);
  }
  page.recordTitle.focus({ preventScroll: true });
}

/** Shows the call that is open ("open"), or what opens one ("empty"). */
function showView(state) {
  const isOpen = state === "open";
  document.body.dataset.state = state;
  page.open.hidden = isOpen;
  page.record.hidden = page.player.hidden = !isOpen;
  page.return.hidden = record === undefined;
  page.main.scrollTop = 0;
}

/** Offers to make a record of this recording; undefined: of none. */
function offerToTranscribe(file) {
  hideMessage();
  recording = file;
  page.transcribeForm.hidden = file === undefined;
  page.jobForm.hidden = page.ways.hidden = file !== undefined;
  if (file !== undefined) {
    page.recordingName.textContent = file.name;
    page.channelNames.focus();
    sides = offerSides(file);
  }
}

/** Fills in the names of the sides, if there are two, unless the user has named them before. */
async function offerSides(file) {
  page.sidesNote.hidden = true;
  if (page.channelNames.value === filledIn) {
    page.channelNames.value = "";
  }
  filledIn = undefined;
  const names = await sidesOf(file);
  if (names.length === 0 || file !== recording || page.channelNames.value !== "") {
    return;
  }
  page.channelNames.value = filledIn = names.join(", ");
  page.sidesNote.hidden = false;
  if (document.activeElement === page.channelNames) {
    // What is typed takes the place of the names.
    page.channelNames.select();
  }
}

function openJob(id) {
  void ask(id, async (signal) => show(await jobResult(id, signal), id, undefined));
}

page.transcribeForm.addEventListener("submit", (event) => {
  event.preventDefault();
  const file = recording;
  void ask(file.name, async (signal) => {
    await sides;
    // A folder, or a file that is gone, is an error of its own: its upload would fail as if the server were not there.
    await file.slice(0, 1).arrayBuffer();
    const names = page.channelNames.value.split(",").map((name) => name.trim());
    const options = { channelNames: names.filter((name) => name !== ""), language: page.language.value };
    const text = await transcribe(file, { ...options, signal, onUploaded: showUpload });
    show(text, nameOf(file), file);
  });
});
page.forget.addEventListener("click", () => {
  offerToTranscribe(undefined);
  page.choose.focus();
});
page.jobForm.addEventListener("submit", (event) => {
  event.preventDefault();
  openJob(page.job.value.trim());
});
page.choose.addEventListener("click", () => page.file.click());
page.another.addEventListener("click", () => {
  pause();
  showView("empty");
  page.choose.focus();
});
page.return.addEventListener("click", () => {
  offerToTranscribe(undefined);
  showView("open");
  page.recordTitle.focus();
});

function nameOf({ name }) {
  return name.replace(/\.[^.]*$/, "") || name;
}

void languages().then((all) => {
  const options = all.map(({ code, name }) => new Option(name, code));
  page.language.append(...options.sort((a, b) => a.label.localeCompare(b.label)));
});
// A link to the result of a job: /calls?job=3f0c…
const job = new URLSearchParams(location.search).get("job");
if (job !== null) {
  page.job.value = job;
  openJob(job);
}
void keepShell("/calls");
