/** Text without words, cut into subtitles. A pure function. */

/** Two lines of subtitles, as broadcasters limit them. A longer segment becomes several cues. */
export const MAX_CUE_CHARACTERS = 84;

/** A segment in pieces of about the same length, cut between words. Their times are in proportion to their characters. */
export function cut({ start_s, end_s, text }) {
  const whole = text.trim();
  const nPieces = Math.ceil(whole.length / MAX_CUE_CHARACTERS);
  if (nPieces < 2) {
    return [{ start_s, end_s, text: whole }];
  }
  const pieces = [""];
  for (const word of whole.split(/\s+/)) {
    const longer = `${pieces.at(-1)} ${word}`.trim();
    const isLong = longer.length > MAX_CUE_CHARACTERS || pieces.at(-1).length >= whole.length / nPieces;
    if (isLong && pieces.at(-1) !== "") {
      pieces.push(word);
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
