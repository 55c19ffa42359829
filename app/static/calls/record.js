/** Reads the file of a call's record, and says in a sentence what is wrong with one that cannot be shown. */

/** The version of the format that this page reads. It changes when a field changes its meaning or goes. */
const VERSION = 1;

/** The text is no record. The message is a sentence for the user. */
export class BadRecord extends Error {}

/**
 * The record in this text, with every field that the page shows. Throws a `BadRecord`.
 * `source` is the object as it was read, with the fields that this page does not know.
 */
export function parseRecord(text) {
  const source = parse(text);
  check(source);
  const names = list(source, "speakers").map((each, index) => string(each, "name", `speakers[${index}].`));
  return {
    source,
    durationS: number(source, "duration_s"),
    silenceS: number(source, "silence_s"),
    overlapS: number(source, "overlap_s"),
    speakers: list(source, "speakers").map(readSpeaker),
    interruptions: list(source, "interruptions").map((each, index) => readInterruption(each, `interruptions[${index}].`, names)),
    // A record of an older server has none.
    redactions: source.redactions === undefined ? [] : list(source, "redactions").map(readRedaction),
    turns: list(source, "turns").map((each, index) => readTurn(each, `turns[${index}].`, names)),
  };
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new BadRecord("Expected the record of a call as JSON, and this is no JSON.");
  }
}

/** Finds files that are something else, and says what they are where that is known. */
function check(source) {
  if (!isObject(source)) {
    throw new BadRecord(`Expected the record of a call, which is a JSON object, and this is ${kindOf(source)}.`);
  }
  if (source.type !== "call_record") {
    throw new BadRecord(`Expected the record of a call, with the type “call_record”, and this is ${described(source)}.`);
  }
  if (source.version !== VERSION) {
    const hint = source.version > VERSION ? " Open it on the page of a newer server." : "";
    throw new BadRecord(`This page reads version ${VERSION} of call records, and this record has ${shown(source.version)}.${hint}`);
  }
}

function described(source) {
  if (source.object === "job") {
    return "the state of a job, not its result";
  }
  if (Array.isArray(source.segments) || typeof source.text === "string") {
    return "a transcript without a record. Ask for response_format=call_record";
  }
  if (Array.isArray(source.entries)) {
    return "a transcript of the captions page";
  }
  return source.type === undefined ? "JSON of another kind" : `of the type ${shown(source.type)}`;
}

function readSpeaker(each, index) {
  const path = `speakers[${index}].`;
  return {
    name: string(each, "name", path),
    talkS: number(each, "talk_s", path),
    talkShare: number(each, "talk_share", path),
    nWords: number(each, "words", path),
    wordsPerMinute: number(each, "words_per_minute", path),
    nTurns: number(each, "turns", path),
    longestTurnS: number(each, "longest_turn_s", path),
    nInterruptions: number(each, "interruptions", path),
  };
}

function readInterruption(each, path, names) {
  return { atS: number(each, "at_s", path), by: oneOf(each, "by", path, names), of: oneOf(each, "of", path, names) };
}

function readRedaction(each, index) {
  const path = `redactions[${index}].`;
  return { kind: string(each, "kind", path), ...span(each, path) };
}

function readTurn(each, path, names) {
  return {
    speaker: names.indexOf(oneOf(each, "speaker", path, names)),
    ...span(each, path),
    text: string(each, "text", path),
    words: list(each, "words", path).map((word, index) => readWord(word, `${path}words[${index}].`)),
  };
}

function readWord(each, path) {
  return { text: string(each, "word", path), ...span(each, path), confidence: number(each, "confidence", path) };
}

function span(each, path) {
  const startS = number(each, "start_s", path);
  const endS = number(each, "end_s", path);
  if (endS < startS) {
    throw bad(`${path}end_s`, `a time that is not before start_s, ${startS}`, endS);
  }
  return { startS, endS };
}

function number(each, name, path = "") {
  const value = field(each, name, path);
  if (typeof value !== "number" || !Number.isFinite(value) || value < 0) {
    throw bad(path + name, "a number that is not negative", value);
  }
  return value;
}

function string(each, name, path = "") {
  const value = field(each, name, path);
  if (typeof value !== "string") {
    throw bad(path + name, "a text", value);
  }
  return value;
}

function oneOf(each, name, path, names) {
  const value = string(each, name, path);
  if (!names.includes(value)) {
    throw bad(path + name, `one of ${names.map(shown).join(", ")}`, value);
  }
  return value;
}

function list(each, name, path = "") {
  const value = field(each, name, path);
  if (!Array.isArray(value)) {
    throw bad(path + name, "a list", value);
  }
  return value;
}

function field(each, name, path) {
  if (!isObject(each)) {
    throw bad(path.slice(0, -1), "an object", each);
  }
  return each[name];
}

function bad(path, expected, value) {
  return new BadRecord(`This record is damaged: ${path}: expected ${expected}, got ${shown(value)}.`);
}

function shown(value) {
  return value === undefined ? "none" : (JSON.stringify(value).length > 40 ? kindOf(value) : JSON.stringify(value));
}

function kindOf(value) {
  return Array.isArray(value) ? "a list" : value === null ? "null" : `a ${typeof value}`;
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
