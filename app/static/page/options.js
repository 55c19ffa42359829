/** What the page asks the server for, from the settings. Times are in seconds. */

import { page } from "./elements.js";
import { settings } from "./settings.js";

/** The limits of the server for hotwords. */
const MAX_HOTWORDS = 64;
const MAX_HOTWORD_BYTES = 47;
/** The length of a paragraph. Longer lines are hard to read. */
const MAX_UTTERANCE_S = 30;

/** The fields of `start` that the settings decide. */
export function sessionOptions() {
  const { translate } = settings;
  return {
    ...fileOptions(),
    ...(translate.length > 0 ? { translate } : {}),
    ...(settings.speakers ? { speakers: {} } : {}),
    endpointing: { max_utterance_s: MAX_UTTERANCE_S },
  };
}

/** The same for the sample, whose language is known. */
export function sampleOptions() {
  const isKnown = [...page.language.options].some(({ value }) => value === "en");
  const { languages: _, ...others } = sessionOptions();
  return isKnown ? { ...others, language: "en" } : sessionOptions();
}

/** Those that a file has too. */
export function fileOptions() {
  const detected = settings.lock ? "lock" : null;
  return { language: detects() ? detected : page.language.value, ...candidates(), ...hotwords() };
}

/** Whether the server finds out the language. */
export function detects() {
  return page.language.value === "";
}

function candidates() {
  return detects() && settings.candidates.length > 0 ? { languages: settings.candidates } : {};
}

function hotwords() {
  const words = hotwordsOf(settings.hotwords);
  return words.length > 0 ? { hotwords: words } : {};
}

/** The names and terms of a text with commas or line ends between them. */
export function hotwordsOf(text) {
  return [...new Set(text.split(/[,\n]/).map((word) => word.trim()))].filter((word) => word !== "");
}

/** Why the server would refuse the names and terms of this text; undefined if it would not. */
export function hotwordsTrouble(text) {
  const words = hotwordsOf(text);
  if (words.length > MAX_HOTWORDS) {
    return `Expected at most ${MAX_HOTWORDS} names and terms, got ${words.length}.`;
  }
  const long = words.find((word) => new TextEncoder().encode(word).length > MAX_HOTWORD_BYTES);
  return long === undefined ? undefined : `Expected at most ${MAX_HOTWORD_BYTES} bytes each, got “${long}”.`;
}
