const WITHOUT_SPACES = "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u2e80-\\u31ff\\u3400-\\u9fff\\uf900-\\ufaff\\uff66-\\uff9f\\u{20000}-\\u{3ffff}";
const TOKEN = new RegExp(`[${WITHOUT_SPACES}]|[^\\s${WITHOUT_SPACES}]+`, "gu");
const STARTS_WITHOUT_SPACE = new RegExp(`^[\\s${WITHOUT_SPACES}]`, "u");
const PUNCTUATION = /[^\p{L}\p{N}_]+/gu;
export function align(shown, theirs) {
    if (theirs.startsWith(shown)) {
        return [shown.length, shown.length];
    }
    if (shown.startsWith(theirs)) {
        return [theirs.length, theirs.length];
    }
    const [left, right] = [tokensOf(shown), tokensOf(theirs)];
    const [nLeft, nRight] = equallyFar(left.map((token) => token.word), right.map((token) => token.word));
    return [
        nLeft === left.length ? shown.length : (left[nLeft - 1]?.end ?? 0),
        nRight === right.length ? theirs.length : (right[nRight - 1]?.end ?? 0),
    ];
}
export function followsWords(text) {
    return STARTS_WITHOUT_SPACE.test(text);
}
export function wordsOf(text) {
    return text.match(/\S+/g) ?? [];
}
function tokensOf(text) {
    return [...text.matchAll(TOKEN)].map(({ 0: token, index }) => ({
        word: token.replace(PUNCTUATION, "").toLowerCase() || token,
        end: index + token.length,
    }));
}
function equallyFar(ours, theirs) {
    let nSame = 0;
    while (nSame < Math.min(ours.length, theirs.length) && ours[nSame] === theirs[nSame]) {
        nSame += 1;
    }
    const left = ours.slice(nSame);
    const right = theirs.slice(nSame);
    let best = [right.length, 0, right.length];
    const consider = (cost, nLeft, nRight) => {
        if (cost < best[0] || (cost === best[0] && nLeft + nRight > best[1] + best[2])) {
            best = [cost, nLeft, nRight];
        }
    };
    let costs = Array.from({ length: right.length + 1 }, (_, index) => index);
    const at = (index) => costs[index];
    for (const [index, word] of left.entries()) {
        const next = [index + 1];
        for (const [j, other] of right.entries()) {
            next.push(Math.min(at(j + 1) + 1, next[j] + 1, at(j) + (word === other ? 0 : 1)));
        }
        costs = next;
        consider(at(right.length), index + 1, right.length);
    }
    costs.forEach((cost, nRight) => consider(cost, left.length, nRight));
    return [nSame + best[1], nSame + best[2]];
}
