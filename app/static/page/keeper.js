/**
 * Keeps the transcript on the device until it is cleared, so that a reload, a closed tab or an empty battery loses no text.
 *
 * Each entry has a key of its own, so that a new one costs the same after hours. Each tab has a transcript of its own. A new
 * tab goes on with one that no other tab has open. Text that is not final yet is kept too, a moment later.
 */

import { keys, read, readJson, remove, write } from "./device.js";
import { showMessage } from "./messages.js";
import { onChange, settings } from "./settings.js";
import { add, all, onTranscript, restore } from "./transcript.js";

const ENTRY_PREFIX = "tutti.entry.";
const OPEN_PREFIX = "tutti.open.";
const TAB_KEY = "tutti.tab";
/** Browsers keep about 5 million characters for a page. The oldest entries give way when there are more than this. */
const MAX_CHARACTERS = 3_000_000;
/** How long a tab that is loaded again may wait until its old document has let go of its transcript. */
const RELOAD_MS = 2_000;
/** How often text that is not final is kept, at most. */
const OPEN_EVERY_MS = 1_000;

let id;
let nCharacters = 0;
/** The unfinished lines that are not kept yet; undefined: none. */
let waiting;
let timer;

onTranscript((what, entry) => {
  if (id === undefined) {
    return;
  }
  if (what === "clear") {
    forget();
  } else if (settings.keep) {
    keep(entry);
  }
});

onChange((names) => {
  if (id !== undefined && names.includes("keep")) {
    if (settings.keep) {
      all().forEach(keep);
    } else {
      forget();
      void forgetClosed();
    }
  }
});

window.addEventListener("pagehide", writeOpen);
document.addEventListener("visibilitychange", writeOpen);

/** Finds this tab's transcript, or one that no tab has open, and shows it. Resolves when that is done. */
export const kept = openTranscript();

async function openTranscript() {
  const mine = tabId();
  const others = transcripts().reverse();
  // A copy of a tab has the id of the tab that it was made of, which keeps its transcript.
  for (const each of new Set(mine === null ? others : [mine, ...others])) {
    if (await isFree(each, each === mine)) {
      id = each;
      break;
    }
  }
  id ??= await newId();
  try {
    sessionStorage.setItem(TAB_KEY, id);
  } catch {
    // The next load finds the transcript among those that no tab has open.
  }
  nCharacters = keys(ENTRY_PREFIX).reduce((sum, key) => sum + lengthOf(key), 0);
  const entries = keys(entryKey("")).map(readJson);
  const open = readJson(OPEN_PREFIX + id) ?? [];
  remove(OPEN_PREFIX + id);
  if (entries.length > 0) {
    restore(entries.filter(isEntry));
  }
  [open].flat().filter(isEntry).forEach((line) => add({ ...line, is_cut: true }));
}

/** Whether this page can show it. An older or newer page may have kept something else. */
function isEntry(value) {
  const { kind = "line", text, start_s, end_s, at, segments, translations } = value ?? {};
  return (
    ["line", "gap", "file"].includes(kind) &&
    [text, at].every((each) => typeof each === "string") &&
    [start_s, end_s].every(Number.isFinite) &&
    Array.isArray(segments) &&
    translations instanceof Object &&
    !Number.isNaN(Date.parse(at))
  );
}

function tabId() {
  try {
    return sessionStorage.getItem(TAB_KEY);
  } catch {
    return null;
  }
}

/** Takes the transcript for this tab until the tab is closed. Returns false if another tab has it. */
async function isFree(each, isMine) {
  if (navigator.locks === undefined) {
    // The page is not secure. It has no microphone, and its tabs may share a transcript.
    return true;
  }
  const options = isMine ? { signal: AbortSignal.timeout(RELOAD_MS) } : { ifAvailable: true };
  return new Promise((resolve) => {
    navigator.locks
      .request(`tutti.transcript.${each}`, options, (lock) => {
        resolve(lock !== null);
        return lock === null ? undefined : new Promise(() => {});
      })
      .catch(() => resolve(false));
  });
}

/** Ids are in the order of time. */
async function newId() {
  const random = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
  const fresh = `${Date.now().toString(36).padStart(9, "0")}-${random}`;
  await isFree(fresh, false);
  return fresh;
}

/** The ids of all transcripts that are kept, in the order of time. */
function transcripts() {
  const ids = [...keys(ENTRY_PREFIX), ...keys(OPEN_PREFIX)].map((key) => key.split(".")[2]);
  return [...new Set(ids)].sort();
}

function entryKey(n, of = id) {
  return `${ENTRY_PREFIX}${of}.${n === "" ? "" : String(n).padStart(9, "0")}`;
}

/** Another tab may have removed it meanwhile. */
function lengthOf(key) {
  return read(key)?.length ?? 0;
}

function keep(entry) {
  const key = entryKey(entry.n);
  const text = JSON.stringify(entry);
  const before = lengthOf(key);
  makeRoom(MAX_CHARACTERS - (text.length - before), key);
  if (!write(key, text)) {
    // The device is full, perhaps with other things.
    makeRoom(nCharacters / 2, key);
    if (!write(key, text)) {
      return;
    }
  }
  nCharacters += text.length - before;
}

/** Removes the oldest entries of all transcripts until at most so much is left. */
function makeRoom(leftCharacters, but) {
  if (nCharacters <= leftCharacters) {
    return;
  }
  showMessage("This device keeps no more text: the oldest lines are here only until the page is closed. Save them.");
  for (const key of keys(ENTRY_PREFIX).filter((each) => each !== but)) {
    nCharacters -= lengthOf(key);
    remove(key);
    if (nCharacters <= leftCharacters) {
      return;
    }
  }
}

function forget() {
  removeEntries(id);
  keepOpen([]);
  writeOpen();
}

/** Forgets the transcripts that no tab has open: another tab would show one of them. */
async function forgetClosed() {
  for (const each of transcripts()) {
    if (each !== id && (await isFree(each, false))) {
      removeEntries(each);
      remove(OPEN_PREFIX + each);
    }
  }
}

function removeEntries(of) {
  for (const key of keys(entryKey("", of))) {
    nCharacters -= lengthOf(key);
    remove(key);
  }
}

/** Keeps the lines that are not final yet, like entries; an empty list when there is none any more. */
export function keepOpen(lines) {
  waiting = lines;
  if (lines.length === 0) {
    writeOpen();
  } else {
    timer ??= setTimeout(writeOpen, OPEN_EVERY_MS);
  }
}

function writeOpen() {
  clearTimeout(timer);
  timer = undefined;
  if (id === undefined || waiting === undefined) {
    return;
  }
  if (waiting.length === 0 || !settings.keep) {
    remove(OPEN_PREFIX + id);
  } else {
    write(OPEN_PREFIX + id, JSON.stringify(waiting));
  }
  waiting = undefined;
}
