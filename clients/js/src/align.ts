/** Finds where two versions of a text, which begin at the same moment, are equally far. The Python client does the same. */

/** The characters of scripts without spaces: Thai, Lao, Burmese, Khmer, Chinese, Japanese. */
const WITHOUT_SPACES =
  "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u2e80-\\u31ff\\u3400-\\u9fff\\uf900-\\ufaff\\uff66-\\uff9f\\u{20000}-\\u{3ffff}";
/** One character of these scripts, or a word of another script. */
const TOKEN = /* @__PURE__ */ new RegExp(`[${WITHOUT_SPACES}]|[^\\s${WITHOUT_SPACES}]+`, "gu");
const STARTS_WITHOUT_SPACE = /* @__PURE__ */ new RegExp(`^[\\s${WITHOUT_SPACES}]`, "u");
const PUNCTUATION = /[^\p{L}\p{N}_]+/gu;

/**
 * A place in `shown` and the corresponding place in `theirs`, in characters. One of them is the end of its text. Words
 * correspond by the fewest edits; case and punctuation do not count.
 */
export function align(shown: string, theirs: string): readonly [number, number] {
  const nShorter = Math.min(shown.length, theirs.length);
  if (shown.slice(0, nShorter) === theirs.slice(0, nShorter)) {
    return [nShorter, nShorter];
  }
  const [left, right] = [tokensOf(shown), tokensOf(theirs)];
  const [nLeft, nRight] = equallyFar(
    left.map((token) => token.word),
    right.map((token) => token.word),
  );
  return [
    nLeft === left.length ? shown.length : (left[nLeft - 1]?.end ?? 0),
    nRight === right.length ? theirs.length : (right[nRight - 1]?.end ?? 0),
  ];
}

/** Whether a text begins as words after other words do: with a space, or with a character that needs none. */
export function followsWords(text: string): boolean {
  return STARTS_WITHOUT_SPACE.test(text);
}

/** The words of a text between spaces. */
export function wordsOf(text: string): readonly string[] {
  return text.match(/\S+/g) ?? [];
}

function tokensOf(text: string): { word: string; end: number }[] {
  return [...text.matchAll(TOKEN)].map(({ 0: token, index }) => ({
    // A token of punctuation alone stays as it is.
    word: token.replace(PUNCTUATION, "").toLowerCase() || token,
    end: index + token.length,
  }));
}

/**
 * The two lengths of beginnings that correspond best: with the fewest edits, and of these the longest. All of one of the
 * lists is used.
 */
function equallyFar(ours: readonly string[], theirs: readonly string[]): [number, number] {
  let nSame = 0;
  while (nSame < ours.length && ours[nSame] === theirs[nSame]) {
    nSame += 1;
  }
  const left = ours.slice(nSame);
  const right = theirs.slice(nSame);
  let best: [cost: number, nLeft: number, nRight: number] = [right.length, 0, right.length];
  const consider = (cost: number, nLeft: number, nRight: number) => {
    if (cost < best[0] || (cost === best[0] && nLeft + nRight > best[1] + best[2])) {
      best = [cost, nLeft, nRight];
    }
  };
  // The edit distances of the first words of `left` to each beginning of `right`.
  let costs = Array.from({ length: right.length + 1 }, (_, index) => index);
  const at = (index: number) => costs[index] as number;
  for (const [index, word] of left.entries()) {
    const next = [index + 1];
    for (const [j, other] of right.entries()) {
      next.push(Math.min(at(j + 1) + 1, (next[j] as number) + 1, at(j) + (word === other ? 0 : 1)));
    }
    costs = next;
    consider(at(right.length), index + 1, right.length);
  }
  costs.forEach((cost, nRight) => consider(cost, left.length, nRight));
  return [nSame + best[1], nSame + best[2]];
}
