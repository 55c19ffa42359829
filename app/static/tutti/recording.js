/** Sessions that take their audio from a source, from its first chunk to its last. */
import { UsageError } from "./errors.js";
import { connect } from "./session.js";
/** How long a source may take to deliver its last audio. */
const FLUSH_TIMEOUT_MS = 1_000;
/**
 * Opens a session, as `connect` does, and records from the source until `session.stop()`. The loop delivers a `source`
 * event whenever the state of the source changes. A source that is lost ends the session when the rest of its text has
 * come; the loop throws the source's error then. The source is released in any case.
 *
 * @throws as `connect`; UsageError `bad_option` if `start.audio` is not what the source gives.
 */
export async function record(url, source, options = {}) {
    let session;
    try {
        session = await connect(url, { ...options, start: startFor(source, options.start) });
        session.recording = new Recording(session, source);
        if (!session.isOpen) {
            session.recording.stop();
        }
        return session;
    }
    catch (error) {
        session?.close();
        source.stop();
        throw error;
    }
}
/** A source that records for one session. */
class Recording {
    #source;
    #timer;
    #isOver = false;
    constructor(session, source) {
        this.#source = source;
        const onChunk = (samples) => {
            if (!this.#isOver) {
                try {
                    session.push(samples);
                }
                catch (error) {
                    session.end(error);
                }
            }
        };
        const onLost = (error) => {
            this.error = error;
            session.stop();
        };
        source.start(onChunk, onLost, (state) => session.deliver({ type: "source", state }));
    }
    /** Delivers the last audio and releases the device; `onDone` is called in any case. */
    finish(onDone) {
        const done = () => {
            if (!this.#isOver) {
                this.stop();
                onDone();
            }
        };
        this.#timer = setTimeout(done, FLUSH_TIMEOUT_MS);
        Promise.resolve(this.#source.flush?.()).then(done, done);
    }
    /** Releases the device at once. */
    stop() {
        this.#isOver = true;
        clearTimeout(this.#timer);
        this.#source.stop();
    }
}
function startFor(source, start = {}) {
    const audio = { encoding: "pcm_s16le", sample_rate: source.sampleRate, channels: 1, ...start.audio };
    if (audio.encoding !== "pcm_s16le" || audio.sample_rate !== source.sampleRate || audio.channels !== 1) {
        const expected = `that of the source, 1 channel of pcm_s16le at ${source.sampleRate} Hz`;
        throw new UsageError("bad_option", `start.audio: expected nothing or ${expected}, got ${JSON.stringify(start.audio)}`);
    }
    return { ...start, audio };
}
