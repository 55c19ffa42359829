/**
 * What to show: folds the events of one session into final lines and, below them, the text that is still being heard.
 *
 * Texts are joined as they are. While an utterance is open its text is `segments + stable + tail`: the first two never
 * change, together they only grow; `tail` may still change.
 */
export class Captions {
    #channels = new Map();
    /** The channels that have been heard so far. */
    get channels() {
        return this.#channels;
    }
    /** Takes one event in and returns the line it touched, if any; a line with `end_s` has ended. */
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
                    ...after(event.text, before?.stable ?? "", before?.tail ?? ""),
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
 * What is left of an interim when a segment has made its beginning final. Stable text stays until it is final. A tail that
 * turned out differently gives way by as many words as the segment has: what follows them must not vanish and come back.
 */
function after(segment, stable, tail) {
    if (stable.startsWith(segment)) {
        return { stable: stable.slice(segment.length), tail };
    }
    const shown = stable + tail;
    return { stable: "", tail: shown.startsWith(segment) ? shown.slice(segment.length) : behindWords(shown, words(segment)) };
}
function words(text) {
    return text.match(/\S+/g)?.length ?? 0;
}
function behindWords(text, n) {
    return text.replace(new RegExp(`^(?:\\s*\\S+){0,${n}}`), "");
}
