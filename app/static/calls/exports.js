/** The record as files: JSON, subtitles with speakers, and a text to read. Pure functions of a record. */

import { cut, MAX_CUE_CHARACTERS } from "../page/cues.js";
import { clock } from "../tutti/clock.js";
import { escaped, oneLine, times } from "../tutti/subtitles.js";
import { piecesOf } from "./pieces.js";

/** No cue lasts longer, as broadcasters limit them. */
const MAX_CUE_S = 7;
/** A cue of words that is this long ends after the end of a sentence. */
const MIN_SENTENCE_CHARACTERS = 30;

/** The formats: the ending and the type of the file, and the function that makes its text. */
export const FORMATS = {
  json: { type: "application/json", write: ({ source }) => `${JSON.stringify(source, null, 2)}\n` },
  srt: { type: "application/x-subrip", write: toSrt },
  vtt: { type: "text/vtt", write: toVtt },
  txt: { type: "text/plain", write: toText },
};

/** One line for each turn: `[0:03] agent: Good morning.` */
export function toText(record) {
  return record.turns.map((turn) => `[${clock(turn.startS)}] ${nameOf(record, turn)}: ${oneLine(turn.text)}\n`).join("");
}

/** SubRip. It has no way to escape an arrow. */
export function toSrt(record) {
  return cuesOf(record)
    .map(({ name, text, startS, endS }, index) => `${index + 1}\n${times(startS, endS, ",")}\n${`${name}: ${text}`.replace(/-{2,}>/g, "->")}\n\n`)
    .join("");
}

/** WebVTT, each cue with a voice. A name in it can have neither `>` nor a line break. */
export function toVtt(record) {
  const cues = cuesOf(record).map(({ name, text, startS, endS }) => `${times(startS, endS, ".")}\n<v ${escaped(name)}>${escaped(text)}\n\n`);
  return ["WEBVTT\n\n", ...cues].join("");
}

/** The cues of all turns in the order of their times. Those of two speakers may overlap. */
function cuesOf(record) {
  const cues = record.turns.flatMap((turn) => cuesOfTurn(turn).map((cue) => ({ ...cue, name: oneLine(nameOf(record, turn)) })));
  return cues.filter(({ text }) => text !== "").sort((a, b) => a.startS - b.startS);
}

/** A turn in pieces that fit into a subtitle, cut between words. */
function cuesOfTurn(turn) {
  if (turn.words.length === 0) {
    const cues = cut({ start_s: turn.startS, end_s: turn.endS, text: turn.text });
    return cues.map(({ start_s: startS, end_s: endS, text }) => ({ startS, endS, text: oneLine(text) }));
  }
  const cues = [];
  let before = "";
  for (const { text, word } of piecesOf(turn)) {
    if (word === undefined) {
      before = text;
      continue;
    }
    const { startS, endS } = turn.words[word];
    const cue = cues.at(-1);
    if (cue === undefined || isComplete(cue, before + text, endS)) {
      cues.push({ text: before + text, startS, endS });
    } else {
      Object.assign(cue, { text: cue.text + before + text, endS });
    }
    before = "";
  }
  cues.at(-1).text += before;
  // As in the server's subtitles, the first cue begins with the turn, and the last one ends with it.
  cues[0].startS = turn.startS;
  cues.at(-1).endS = turn.endS;
  return cues.map((cue) => ({ ...cue, text: oneLine(cue.text) }));
}

/** Whether more text belongs into another cue. */
function isComplete({ text, startS }, more, endS) {
  const isSentence = text.length >= MIN_SENTENCE_CHARACTERS && /[.?!]$/.test(text);
  return isSentence || text.length + more.trimEnd().length > MAX_CUE_CHARACTERS || endS - startS > MAX_CUE_S;
}

function nameOf({ speakers }, { speaker }) {
  return speakers[speaker].name;
}
