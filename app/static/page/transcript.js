/**
 * What was said, in the order in which it became final. It knows nothing of the page: `lines.js` draws it, `keeper.js` keeps
 * it on the device, and `exports.js` makes files of it.
 *
 * An entry has:
 *
 * - `n`: its number, which grows from entry to entry.
 * - `kind`: "line"; "gap" for audio that is lost; "file" for the name of a file, whose lines follow.
 * - `utterance`: of a line, the number of its utterance in its session.
 * - `at`: when it was said, as an ISO 8601 text.
 * - `start_s`, `end_s`: its times in the transcript, in seconds.
 * - `text`: its text.
 * - `segments`: of a line, `{ start_s, end_s, text }` in the order of time.
 * - `language`: of a line, the code of its language; null if the server did not say.
 * - `speaker`: of a line, the letter of who speaks it; null if the server did not say.
 * - `is_cut`: of a line, whether the session ended before the line did.
 * - `translations`: of a line, for each language a list like `segments`.
 */

const listeners = [];
let entries = [];
let nextN = 0;

/** `listener` is called with "add", "change" or "restore" and an entry, or with "clear". */
export function onTranscript(listener) {
  listeners.push(listener);
}

/** All entries; not to be changed. */
export function all() {
  return entries;
}

export function isEmpty() {
  return entries.length === 0;
}

/** Adds what was just said. Returns the entry. */
export function add(said) {
  const entry = {
    n: nextN,
    kind: "line",
    at: new Date().toISOString(),
    segments: [],
    language: null,
    speaker: null,
    is_cut: false,
    translations: {},
    ...said,
  };
  nextN += 1;
  entries.push(entry);
  tell("add", entry);
  return entry;
}

/** Adds a translated piece to the entry. The pieces of a language are joined as they are. */
export function addTranslation(entry, language, piece) {
  (entry.translations[language] ??= []).push(piece);
  tellChange(entry);
}

/** Notes who speaks a line. */
export function setSpeaker(entry, speaker) {
  if (entry.speaker !== speaker) {
    entry.speaker = speaker;
    tellChange(entry);
  }
}

/** Removes everything. Returns the entries, for `restore`. */
export function clear() {
  const removed = entries;
  entries = [];
  tell("clear");
  return removed;
}

/**
 * Puts entries of before in front of those that have come since, with new numbers. They stay the same objects: a session that
 * runs still changes them.
 */
export function restore(kept) {
  const since = clear();
  entries = [...kept, ...since];
  entries.forEach((entry, index) => {
    entry.n = index;
  });
  nextN = entries.length;
  entries.forEach((entry) => tell("restore", entry));
}

/** The languages that there are translations to. */
export function translationLanguages() {
  return [...new Set(entries.flatMap(({ translations }) => Object.keys(translations)))].sort();
}

/** An entry that was cleared may still change; that shows when it is restored. */
function tellChange(entry) {
  if (entries.includes(entry)) {
    tell("change", entry);
  }
}

function tell(what, entry) {
  listeners.forEach((listener) => listener(what, entry));
}
