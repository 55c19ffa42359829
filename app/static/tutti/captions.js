/**
 * Collects the events of one session into text to show: final lines and, below them, the utterances that are open.
 *
 * Texts are joined without a separator. The text of an open utterance is `segments + stable + tail`. The first two only
 * grow together and never change; `tail` may still change.
 */
/** The text of a session. Call `apply` with each event. */
export class Captions {
    #channels = new Map();
    /** The channels that have had an utterance so far. */
    get channels() {
        return this.#channels;
    }
    /** Applies an event. Returns the line that it changed, if any; a line with `end_s` has ended. */
    apply(event) {
        switch (event.type) {
            case "speech_started":
                return this.#change(event.channel, event.utterance, event.at_s, {});
            case "interim":
                return this.#change(event.channel, event.utterance, event.start_s, { stable: event.stable, tail: event.tail });
            case "segment": {
                const before = this.#find(event.channel, event.utterance);
                return this.#change(event.channel, event.utterance, event.start_s, {
                    segments: (before?.segments ?? "") + event.text,
                    ...withoutSegment(event.text, before?.stable ?? "", before?.tail ?? ""),
                });
            }
            case "utterance": {
                const { utterance, channel, start_s, end_s, text, uncovered } = event;
                const line = { utterance, channel, start_s, end_s, text, uncovered };
                const captions = this.#channel(channel);
                captions.open = captions.open.filter((open) => open.utterance !== utterance);
                captions.lines.push(line);
                return line;
            }
            default:
                return undefined;
        }
    }
    #channel(channel) {
        let captions = this.#channels.get(channel);
        if (captions === undefined) {
            captions = { lines: [], open: [] };
            this.#channels.set(channel, captions);
        }
        return captions;
    }
    #find(channel, utterance) {
        return this.#channels.get(channel)?.open.find((open) => open.utterance === utterance);
    }
    #change(channel, utterance, start_s, changes) {
        const captions = this.#channel(channel);
        const before = this.#find(channel, utterance);
        const changed = {
            ...(before ?? { utterance, channel, start_s, segments: "", stable: "", tail: "" }),
            ...changes,
        };
        captions.open =
            before === undefined
                ? [...captions.open, changed]
                : captions.open.map((open) => (open === before ? changed : open));
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
    const rest = shown.startsWith(segment)
        ? shown.slice(segment.length)
        : withoutFirstWords(shown, countWords(segment));
    return { stable: "", tail: rest };
}
function countWords(text) {
    return text.match(/\S+/g)?.length ?? 0;
}
function withoutFirstWords(text, n) {
    return text.replace(new RegExp(`^(?:\\s*\\S+){0,${n}}`), "");
}
