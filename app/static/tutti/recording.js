import { UsageError } from "./errors.js";
import { connect } from "./session.js";
const FLUSH_TIMEOUT_MS = 1_000;
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
