export class SpeakerTimeline {
    #spans = [];
    apply(event) {
        for (const span of event.spans.filter(({ from_s, until_s }) => from_s < until_s)) {
            const first = this.#firstThat((each) => each.until_s >= span.from_s);
            const near = this.#spans.slice(first, this.#firstThat((each) => each.from_s > span.until_s));
            const joined = [];
            for (const each of [
                ...near.flatMap((other) => cut(other, -Infinity, span.from_s)),
                span,
                ...near.flatMap((other) => cut(other, span.until_s, Infinity)),
            ]) {
                const last = joined.at(-1);
                if (last?.speaker === each.speaker && last.until_s === each.from_s) {
                    joined[joined.length - 1] = { ...last, until_s: each.until_s };
                }
                else {
                    joined.push(each);
                }
            }
            this.#spans.splice(first, near.length, ...joined);
        }
        const [starts, ends] = [event.spans.map((each) => each.from_s), event.spans.map((each) => each.until_s)];
        return [Math.min(...starts), Math.max(...ends)];
    }
    speakerOf(fromS, untilS) {
        const totals = new Map();
        const first = this.#firstThat((each) => each.until_s > fromS);
        const last = this.#firstThat((each) => each.from_s >= untilS);
        for (const span of this.#spans.slice(first, last).flatMap((each) => cut(each, fromS, untilS))) {
            totals.set(span.speaker, (totals.get(span.speaker) ?? 0) + span.until_s - span.from_s);
        }
        return [...totals].reduce((best, each) => (each[1] > best[1] ? each : best), [undefined, 0])[0];
    }
    #firstThat(holds) {
        let [low, high] = [0, this.#spans.length];
        while (low < high) {
            const middle = (low + high) >> 1;
            if (holds(this.#spans[middle])) {
                high = middle;
            }
            else {
                low = middle + 1;
            }
        }
        return low;
    }
}
function cut(span, fromS, untilS) {
    const part = { ...span, from_s: Math.max(span.from_s, fromS), until_s: Math.min(span.until_s, untilS) };
    return part.from_s < part.until_s ? [part] : [];
}
