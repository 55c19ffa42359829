/** Who speaks when. A module of its own: what does not import it does not load it. */
/** What the `speakers` events of a session say, together. */
export class SpeakerTimeline {
    /** In the order of their times; none overlaps another. */
    #spans = [];
    /** Applies an event. It replaces what earlier ones said of its times. */
    apply(event) {
        for (const { from_s, until_s, speaker } of event.spans) {
            const before = this.#spans.flatMap((span) => cut(span, -Infinity, from_s));
            const after = this.#spans.flatMap((span) => cut(span, until_s, Infinity));
            const last = before.at(-1);
            const isSame = last?.speaker === speaker && last.until_s === from_s;
            this.#spans = isSame
                ? [...before.slice(0, -1), { ...last, until_s }, ...after]
                : [...before, { from_s, until_s, speaker }, ...after];
        }
    }
    /** Who speaks for most of a time; undefined if that is not known. */
    speakerOf(fromS, untilS) {
        const totals = new Map();
        for (const span of this.#spans.flatMap((each) => cut(each, fromS, untilS))) {
            totals.set(span.speaker, (totals.get(span.speaker) ?? 0) + span.until_s - span.from_s);
        }
        return [...totals].reduce((best, each) => (each[1] > best[1] ? each : best), [undefined, 0])[0];
    }
}
/** The part of a span between two times, if there is one. */
function cut(span, fromS, untilS) {
    const part = { ...span, from_s: Math.max(span.from_s, fromS), until_s: Math.min(span.until_s, untilS) };
    return part.from_s < part.until_s ? [part] : [];
}
