/** The words of an utterance that may go on in another connection, and their times. This module does no I/O. */

import type { SegmentEvent, Word } from "./events.js";

/** As in `align.ts`, which does not export it: that would be one file more for pages that need no words. */
const WITHOUT_SPACES =
  "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u2e80-\\u31ff\\u3400-\\u9fff\\uf900-\\ufaff\\uff66-\\uff9f\\u{20000}-\\u{3ffff}";
const PUNCTUATION = "[^\\p{L}\\p{N}_\\s]*";
/** A word, or a character of a script without spaces, with the punctuation before and after it. */
const TIMED = new RegExp(`${PUNCTUATION}(?:[${WITHOUT_SPACES}]|[^\\s${WITHOUT_SPACES}]+)${PUNCTUATION}`, "gu");

/** The words of one utterance. */
export class UtteranceWords {
  /** Those of its stable text. */
  #shown: readonly Word[] = [];

  /**
   * The words of a segment that is delivered.
   *
   * @param text the text that it is delivered with: that of the connection's segment, its end, or another version of it.
   *   The stable text began with it, but for its punctuation.
   * @param startS where it begins.
   */
  finish(text: string, segment: SegmentEvent, startS: number): readonly Word[] {
    this.#shown = wordsAfter(this.#shown, text);
    return timedWords(text, segment, startS);
  }

  /**
   * The field of an interim with this stable text.
   *
   * @param theirs the words of the connection's stable text.
   * @param isWhole whether that text is `stable`.
   */
  show(stable: string, theirs: readonly Word[], isWhole: boolean): { readonly stable_words?: readonly Word[] } {
    this.#shown = isWhole ? theirs : growWords(this.#shown, stable, theirs);
    return this.#shown.length === 0 ? {} : { stable_words: this.#shown };
  }
}

/**
 * The words of `stable`: those that were shown for its beginning, and those of the connection for the rest. Their times
 * never go back. If the text has grown by words whose times are not known, these are left out.
 *
 * @param shown the words of the stable text before, which is the beginning of `stable`.
 * @param stable the stable text that is delivered.
 * @param theirs the words of the connection's stable text, which ends as `stable` does.
 */
function growWords(shown: readonly Word[], stable: string, theirs: readonly Word[]): readonly Word[] {
  const all = withoutSpaces(stable);
  const before = charactersOf(shown);
  let missing = all.startsWith(before) ? all.slice(before.length) : all;
  let kept = shown;
  const added: Word[] = [];
  for (const word of [...theirs].reverse()) {
    const characters = charactersOf([word]);
    const last = kept.at(-1);
    if (missing === "" || !(missing.endsWith(characters) || characters.endsWith(missing))) {
      break;
    }
    if (characters.length > missing.length && last !== undefined) {
      // Punctuation that has joined the last word.
      kept = [...kept.slice(0, -1), { ...last, word: last.word + missing }];
    } else {
      added.unshift(word);
    }
    missing = missing.slice(0, Math.max(missing.length - characters.length, 0));
  }
  if (missing !== "") {
    return kept;
  }
  const sinceS = kept.at(-1)?.end_s ?? 0;
  const notBefore = (timeS: number) => Math.max(timeS, sinceS);
  return [
    ...kept,
    ...added.map((word) => ({ ...word, start_s: notBefore(word.start_s), end_s: notBefore(word.end_s) })),
  ];
}

/** The words that are left after `text`, which they begin with but for its punctuation, has become final. */
function wordsAfter(shown: readonly Word[], text: string): readonly Word[] {
  let nLetters = countLetters(text);
  const first = shown.findIndex(({ word }) => {
    const isLeft = nLetters <= 0;
    nLetters -= countLetters(word);
    return isLeft;
  });
  return first < 0 ? [] : shown.slice(first);
}

const countLetters = (text: string): number => text.match(/[\p{L}\p{N}]/gu)?.length ?? 0;

const withoutSpaces = (text: string): string => text.replaceAll(/\s/gu, "");

const charactersOf = (words: readonly Word[]): string => words.map(({ word }) => withoutSpaces(word)).join("");

/** The times of the words of `text`, which may be the end of the segment's text, or another version of it. */
function timedWords(text: string, event: SegmentEvent, startS: number): readonly Word[] {
  if (text === event.text || event.words.length === 0) {
    return event.words;
  }
  const characters = withoutSpaces(text);
  const first = event.words.findIndex((_, at) => charactersOf(event.words.slice(at)) === characters);
  if (first >= 0 && event.text.endsWith(text)) {
    return event.words.slice(first);
  }
  // Each word gets a share of the time by its length.
  const words = text.match(TIMED) ?? [];
  const timed: Word[] = [];
  let nChars = characters.length;
  let fromS = startS;
  for (const word of words) {
    const untilS = fromS + ((event.end_s - fromS) * word.length) / nChars;
    nChars -= word.length;
    timed.push({ word, start_s: rounded(fromS), end_s: rounded(untilS), confidence: event.confidence });
    fromS = untilS;
  }
  return timed;
}

/** A time with whole milliseconds. */
function rounded(timeS: number): number {
  return Math.round(timeS * 1000) / 1000;
}
