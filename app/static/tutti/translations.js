const ROUNDING_S = 0.002;
const MAX_REMEMBERED = 500;
const MAX_SPAN_S = 28;
const MAX_PIECES = 64;
const MAX_CHARS = 10_000;
export class PendingTranslations {
    #targets;
    #texts = [];
    #numbers = new Map();
    #untilS = new Map();
    constructor(targets) {
        this.#targets = targets;
    }
    get neededFromS() {
        return this.#texts.length === 0 ? undefined : Math.min(...this.#texts.map(({ start_s }) => start_s));
    }
    restart() {
        this.#numbers.clear();
    }
    noteNumber(theirs, ours) {
        remember(this.#numbers, theirs, ours);
    }
    add(segment) {
        this.#texts = [...this.#texts, segment].slice(-MAX_REMEMBERED);
    }
    forgetBefore(timesS = []) {
        this.#texts = this.#texts.filter((each) => each.end_s > (timesS[each.channel] ?? -Infinity) + ROUNDING_S);
    }
    receive(event) {
        const { earlier, ...rest } = event;
        const utterance = earlier === true ? event.utterance : (this.#numbers.get(event.utterance) ?? event.utterance);
        const key = keyOf(utterance, event.language);
        const isNew = (event.start_s + event.end_s) / 2 >= (this.#untilS.get(key) ?? 0) - ROUNDING_S;
        if (isNew) {
            remember(this.#untilS, key, event.end_s);
        }
        this.forgetBefore(event.translated_until_s);
        return isNew ? { ...rest, utterance } : undefined;
    }
    missing(fromS) {
        const pieces = [];
        for (const segment of [...this.#texts].sort((one, other) => one.channel - other.channel)) {
            const { utterance, channel, start_s, text, language } = segment;
            const end_s = Math.min(segment.end_s, fromS[Math.min(channel, fromS.length - 1)] ?? 0);
            const targets = this.#targets.filter((target) => this.#isMissing(segment, target));
            if (targets.length === 0 || start_s >= end_s) {
                continue;
            }
            const last = pieces[pieces.length - 1];
            if (last !== undefined && goesOn(last, segment, targets) && end_s - last.start_s <= MAX_SPAN_S) {
                pieces[pieces.length - 1] = { ...last, end_s, text: last.text + text };
            }
            else {
                pieces.push({ utterance, channel, start_s, end_s, text, language, targets });
            }
        }
        const newest = pieces.sort((one, other) => one.start_s - other.start_s).slice(-MAX_PIECES);
        while (newest.reduce((sum, { text }) => sum + text.length, 0) > MAX_CHARS) {
            newest.shift();
        }
        return newest;
    }
    #isMissing(segment, target) {
        const untilS = this.#untilS.get(keyOf(segment.utterance, target)) ?? 0;
        return target !== segment.language && segment.end_s > untilS + ROUNDING_S;
    }
}
function goesOn(piece, segment, targets) {
    const isSame = piece.utterance === segment.utterance && piece.channel === segment.channel;
    return isSame && piece.language === segment.language && piece.targets.join() === targets.join();
}
function keyOf(utterance, language) {
    return `${utterance} ${language}`;
}
function remember(map, key, value) {
    map.set(key, value);
    const [oldest] = map.keys();
    if (map.size > MAX_REMEMBERED && oldest !== undefined) {
        map.delete(oldest);
    }
}
