/** The text of a turn as pieces: its words, and what stands between them. */

/**
 * Pieces of `{ text, word }`; `word` is the number of the word in the turn, or undefined for what stands between two.
 * Where a word is not in the text, the words make the text, with spaces between them.
 */
export function piecesOf({ text, words }) {
  const found = [];
  let at = 0;
  for (const [word, { text: written }] of words.entries()) {
    const start = text.indexOf(written, at);
    if (start < 0) {
      return words.flatMap((each, index) => [...(index > 0 ? [{ text: " " }] : []), { text: each.text, word: index }]);
    }
    if (start > at) {
      found.push({ text: text.slice(at, start) });
    }
    found.push({ text: written, word });
    at = start + written.length;
  }
  return at < text.length ? [...found, { text: text.slice(at) }] : found;
}
