/** The words of the stable text of an utterance that goes on in another connection. This module does no I/O. */

import type { Word } from "./events.js";

/**
 * The words of `stable`: those that were shown for its beginning, and those of the connection for the rest. Their times
 * never go back. If the text has grown by words whose times are not known, these are left out.
 *
 * @param shown the words of the stable text before, which is the beginning of `stable`.
 * @param stable the stable text that is delivered.
 * @param theirs the words of the connection's stable text, which ends as `stable` does.
 */
export function growWords(shown: readonly Word[], stable: string, theirs: readonly Word[]): readonly Word[] {
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
export function wordsAfter(shown: readonly Word[], text: string): readonly Word[] {
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
