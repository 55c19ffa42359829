/**
 * Collects the events of one session into text to show: final lines and, below them, the utterances that are open.
 *
 * Texts are joined without a separator. The text of an open utterance is `segments + stable + tail`. The first two only
 * grow together and never change; `tail` may still change.
 */
/** The text of a session. Call `apply` with each event. */
export class Captions {
    constructor() {
        this.#channels = new Map();
        /** The channels that have had an utterance so far. */
        this.channels = this.#channels;
    }
    #channels;
    /** Applies an event. Returns the line that it changed, if any; a line with `end_s` has ended. */
    apply(event) {
        switch (event.type) {
            case "speech_started":
                return this.#change(event, event.at_s, () => ({}));
            case "interim":
                return this.#change(event, event.start_s, () => ({ stable: event.stable, tail: event.tail }));
            case "segment":
                return this.#change(event, event.start_s, ({ segments, stable, tail }) => ({
                    segments: segments + event.text,
                    ...withoutSegment(event.text, stable, tail),
                }));
            case "utterance": {
                const { utterance, channel, start_s, end_s, text, uncovered } = event;
                const line = { utterance, channel, start_s, end_s, text, uncovered };
                const captions = this.#channel(channel);
                captions.open = captions.open.filter((open) => open.utterance !== utterance);
                captions.lines = [...captions.lines, line];
                return line;
            }
            default:
                return undefined;
        }
    }
    #channel(channel) {
        const captions = this.#channels.get(channel) ?? { lines: [], open: [] };
        this.#channels.set(channel, captions);
        return captions;
    }
    #change({ utterance, channel }, start_s, changes) {
        const captions = this.#channel(channel);
        const before = captions.open.find((open) => open.utterance === utterance);
        const line = before ?? { utterance, channel, start_s, segments: "", stable: "", tail: "" };
        const changed = { ...line, ...changes(line) };
        captions.open = before ? captions.open.map((open) => (open === before ? changed : open)) : [...captions.open, changed];
        return changed;
    }
}
/**
 * The rest of an interim after a segment has made its beginning final. If the tail was different from the segment, as
 * many words of it are removed as the segment has. The words after them would otherwise disappear and come back.
 */
export function withoutSegment(segment, stable, tail) {
    if (stable.startsWith(segment)) {
        return { stable: stable.slice(segment.length), tail };
    }
    const shown = stable + tail;
    const nWords = segment.match(/\S+/g)?.length ?? 0;
    const rest = shown.startsWith(segment)
        ? shown.slice(segment.length)
        : shown.replace(new RegExp(`^(?:\\s*\\S+){0,${nWords}}`), "");
    return { stable: "", tail: rest };
}
