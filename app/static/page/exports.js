/** The transcript as files: a text to read, subtitles, and JSON. Pure functions of its entries. */

import { clock } from "../tutti/clock.js";
import { toSrt, toVtt } from "../tutti/index.js";
import { cut } from "./cues.js";

/** The formats: the ending and the type of the file, and the function that makes its text. */
export const FORMATS = {
  txt: { type: "text/plain", write: (entries, { language, withTimes }) => toText(entries, language, withTimes) },
  srt: { type: "application/x-subrip", write: (entries, { language }) => toSrt(cues(entries, language)) },
  vtt: { type: "text/vtt", write: (entries, { language }) => toVtt(cues(entries, language)) },
  json: { type: "application/json", write: (entries) => toJson(entries) },
};

/** One line for each utterance. `language`: of a translation; "": as spoken. */
export function toText(entries, language, withTimes) {
  return entries.map((entry) => `${lineText(entry, language, withTimes)}\n`).join("");
}

/** An entry as one line of text. */
export function lineText(entry, language, withTimes) {
  const text = (language === "" || entry.kind !== "line" ? entry.text : joined(entry.translations[language])).trim();
  const said = named(entry, text);
  return withTimes ? `[${clock(entry.start_s)}] ${said}` : said;
}

/** A text of the entry after the name of its speaker, where there is one. */
function named(entry, text) {
  return entry.kind === "line" && typeof entry.speaker === "string" ? `${entry.speaker}: ${text}` : text;
}

function joined(pieces = []) {
  return pieces.map(({ text }) => text).join("");
}

/** The pieces of all lines, none longer than a subtitle may be. The first one of a line names its speaker. */
function cues(entries, language) {
  const lines = entries.filter(({ kind }) => kind === "line");
  return lines.flatMap((line) => {
    const pieces = language === "" ? line.segments : (line.translations[language] ?? []);
    return pieces.map((piece, n) => (n === 0 ? { ...piece, text: named(line, piece.text.trim()) } : piece)).flatMap(cut);
  });
}

function toJson(entries) {
  return `${JSON.stringify({ schema: 1, entries: entries.map(({ n: _n, utterance: _utterance, ...entry }) => entry) }, null, 2)}\n`;
}

/** A name for the file, with the time of the first entry: `captions-2026-11-22-1030.srt`. */
export function fileName(entries, format, language) {
  const at = new Date(entries[0].at);
  const two = (number) => String(number).padStart(2, "0");
  const day = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  const ending = language === "" || format === "json" ? format : `${language}.${format}`;
  return `captions-${day}-${two(at.getHours())}${two(at.getMinutes())}.${ending}`;
}
