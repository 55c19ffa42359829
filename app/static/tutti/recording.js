/** The audio source of a session: what of it the session needs, from the first chunk to the last. */
import { UsageError } from "./errors.js";
/** How long a source may take to deliver its last audio. */
const FLUSH_TIMEOUT_MS = 1_000;
/** A source that records for one session. */
export class Recording {
    #source;
    #isStarted = false;
    #timer;
    constructor(source) {
        this.#source = source;
    }
    /** Begins to record. A second call has no effect. */
    start({ onAudio, onState, onLost }) {
        if (!this.#isStarted) {
            this.#isStarted = true;
            this.#source.start(onAudio, onLost, onState);
        }
    }
    /** Delivers the last audio and releases the device; `onDone` is called in any case. */
    finish(onDone) {
        const done = () => {
            if (this.#timer !== undefined) {
                this.stop();
                onDone();
            }
        };
        this.#timer = setTimeout(done, FLUSH_TIMEOUT_MS);
        Promise.resolve(this.#source.flush?.()).then(done, done);
    }
    /** Releases the device at once. */
    stop() {
        clearTimeout(this.#timer);
        this.#timer = undefined;
        this.#source.stop();
    }
}
/**
 * The fields of `start` for a source.
 *
 * @throws UsageError `bad_option` if `start.audio` says something else.
 */
export function startFor(source, start = {}) {
    if (source === undefined) {
        return start;
    }
    const audio = { encoding: "pcm_s16le", sample_rate: source.sampleRate, channels: 1, ...start.audio };
    if (audio.encoding !== "pcm_s16le" || audio.sample_rate !== source.sampleRate || audio.channels !== 1) {
        const expected = `that of the source, 1 channel of pcm_s16le at ${source.sampleRate} Hz`;
        throw new UsageError("bad_option", `start.audio: expected nothing or ${expected}, got ${JSON.stringify(start.audio)}`);
    }
    return { ...start, audio };
}
