import { align } from "./align.js";
export class Captions {
    constructor() {
        this.#channels = new Map();
        this.channels = this.#channels;
    }
    #channels;
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
export function withoutSegment(segment, stable, tail) {
    const [, nChars] = align(segment, stable + tail);
    return { stable: stable.slice(nChars), tail: tail.slice(Math.max(nChars - stable.length, 0)) };
}
