/** Text without words, cut into subtitles. A pure function. */

/** Two lines of subtitles, as broadcasters limit them. A longer segment becomes several cues. */
export const MAX_CUE_CHARACTERS = 84;

/** Signs that begin no piece, as they belong to the word before: closing brackets, full stops, marks that lengthen a sound. */
const NEVER_FIRST = /^[\p{Pe}\p{Pf}\p{Po}\p{Lm}\p{M}]/u;
/** Spaces and opening brackets end no piece: they belong to the word after. */
const NEVER_LAST = /[ \p{Ps}\p{Pi}]$/u;

/** A segment in pieces of about the same length, cut between words. Their times are in proportion to their characters. */
export function cut({ start_s, end_s, text }) {
  const whole = text.trim().replace(/\s+/g, " ");
  const nPieces = Math.ceil(whole.length / MAX_CUE_CHARACTERS);
  if (nPieces < 2) {
    return [{ start_s, end_s, text: whole }];
  }
  const pieces = [""];
  for (const word of wordsOf(whole)) {
    const longer = pieces.at(-1) + word;
    const isLong = longer.length > MAX_CUE_CHARACTERS || pieces.at(-1).length >= whole.length / nPieces;
    if (isLong && pieces.at(-1) !== "") {
      pieces.push(word.trimStart());
    } else {
      pieces[pieces.length - 1] = longer;
    }
  }
  const sPerCharacter = (end_s - start_s) / pieces.join("").length;
  let atS = start_s;
  return pieces.map((piece) => {
    const beginS = atS;
    atS += piece.length * sPerCharacter;
    return { start_s: beginS, end_s: atS, text: piece };
  });
}

/** The words, each with the space before it. What is too long for a piece is cut where no space is, as Chinese must be. */
function wordsOf(whole) {
  return whole
    .split(/(?= )/)
    .flatMap((word) => (isTooLong(word) ? joined(parts(word, "word")) : [word]))
    .flatMap((word) => (isTooLong(word) ? parts(word, "grapheme") : [word]));
}

function isTooLong(word) {
  return word.trimStart().length > MAX_CUE_CHARACTERS;
}

function parts(text, granularity) {
  return Array.from(new Intl.Segmenter(undefined, { granularity }).segment(text), ({ segment }) => segment);
}

/** Words together with the signs that no cut may part from them. */
function joined(words) {
  const made = [];
  for (const word of words) {
    if (made.length > 0 && (NEVER_FIRST.test(word) || NEVER_LAST.test(made.at(-1)))) {
      made[made.length - 1] += word;
    } else {
      made.push(word);
    }
  }
  return made;
}
