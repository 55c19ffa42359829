/** Records the microphone as chunks of 16-bit PCM, for the caller to send. */
import { AbortedError, MicrophoneError, TuttiError } from "./errors.js";
/** The highest sample rate that the server accepts. A faster audio context is replaced by one of this rate. */
const MAX_SAMPLE_RATE = 48_000;
/** How long the audio system of the browser may take to start. */
const START_TIMEOUT_MS = 10_000;
/** The audio thread answers within a few blocks of 3 ms each; a suspended one never answers. */
const FLUSH_TIMEOUT_MS = 250;
const CONSTRAINTS = {
    channelCount: 1,
    autoGainControl: true,
    echoCancellation: false,
    noiseSuppression: false,
};
/**
 * Asks the user for the microphone. Call it from a click. Nothing is recorded before `start`.
 *
 * @throws MicrophoneError with code `insecure_page`, `permission_denied`, `no_microphone`, `microphone_busy` or
 *   `microphone_failed`; AbortedError.
 */
export async function openMicrophone(options = {}) {
    const { signal } = options;
    // On pages that are not secure it does not exist, although its type says that it does.
    const devices = globalThis.navigator?.mediaDevices;
    if (devices === undefined) {
        throw new MicrophoneError("insecure_page", "browsers give the microphone only to pages on https or localhost");
    }
    const audio = { ...CONSTRAINTS, ...options.constraints };
    const granted = devices.getUserMedia({ audio });
    let stream;
    try {
        stream = await within(granted, signal);
    }
    catch (error) {
        // After an abort the browser's question stays on the screen. An answer to it must not leave the microphone on.
        granted.then(stopTracks, () => { });
        throw microphoneError(error);
    }
    let context;
    try {
        context = openContext();
        await within(context.audioWorklet.addModule(options.workletUrl ?? new URL("./worklet.js", import.meta.url)), signal);
        await within(context.resume(), signal, START_TIMEOUT_MS);
        return new Microphone(stream, context);
    }
    catch (error) {
        stopTracks(stream);
        void context?.close();
        throw microphoneError(error);
    }
}
/** An open microphone. `openMicrophone` makes it. */
export class Microphone {
    /** The value for `start.audio.sample_rate`; at most 48 kHz. */
    sampleRate;
    #stream;
    #context;
    #node;
    #onFlushed;
    #isStopped = false;
    /** @internal Use `openMicrophone`. */
    constructor(stream, context) {
        this.sampleRate = context.sampleRate;
        this.#stream = stream;
        this.#context = context;
        this.#node = new AudioWorkletNode(context, "tutti-pcm-chunks", {
            channelCount: 1,
            channelCountMode: "explicit",
        });
    }
    /**
     * Begins to record. `onChunk` is called with about 100 ms of mono 16-bit PCM at a time. `onLost` is called once if
     * the device is disconnected or the user withdraws the permission.
     */
    start(onChunk, onLost) {
        this.#node.port.onmessage = (message) => {
            if (message.data.length === 0) {
                this.#onFlushed?.();
            }
            else if (!this.#isStopped) {
                onChunk(message.data);
            }
        };
        for (const track of this.#stream.getAudioTracks()) {
            track.onended = () => onLost?.(new MicrophoneError("microphone_lost", "the microphone was disconnected"));
        }
        this.#context.createMediaStreamSource(this.#stream).connect(this.#node);
        // The worklet writes nothing, so this plays silence. Some browsers run only nodes that lead to the destination.
        this.#node.connect(this.#context.destination);
    }
    /** Delivers the last, shorter chunk. Call it before `stop()`. It resolves within 250 ms in any case. */
    flush() {
        return new Promise((resolve) => {
            const timer = setTimeout(resolve, FLUSH_TIMEOUT_MS);
            this.#onFlushed = () => {
                clearTimeout(timer);
                resolve();
            };
            this.#node.port.postMessage("flush");
        });
    }
    /** Releases the device. A second call has no effect. */
    stop() {
        if (this.#isStopped) {
            return;
        }
        this.#isStopped = true;
        this.#onFlushed?.();
        this.#node.port.onmessage = null;
        this.#node.disconnect();
        stopTracks(this.#stream);
        void this.#context.close();
    }
}
function openContext() {
    const context = new AudioContext();
    if (context.sampleRate <= MAX_SAMPLE_RATE) {
        return context;
    }
    void context.close();
    return new AudioContext({ sampleRate: MAX_SAMPLE_RATE });
}
function stopTracks(stream) {
    for (const track of stream.getTracks()) {
        track.onended = null;
        track.stop();
    }
}
/** `promise`, unless the signal fires or the time is over first. */
function within(promise, signal, timeoutMs) {
    return new Promise((resolve, reject) => {
        const onAbort = () => settle(() => reject(new AbortedError(signal?.reason)));
        const onTimeout = () => settle(() => reject(new Error(`the audio system did not start within ${timeoutMs} ms`)));
        const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs);
        const settle = (act) => {
            clearTimeout(timer);
            signal?.removeEventListener("abort", onAbort);
            act();
        };
        signal?.addEventListener("abort", onAbort);
        promise.then((value) => settle(() => resolve(value)), (error) => settle(() => reject(error)));
        if (signal?.aborted === true) {
            onAbort();
        }
    });
}
/** The code and message for each name that a DOMException may have here. */
const SENTENCES = {
    NotAllowedError: ["permission_denied", "the microphone is blocked for this page; allow it in the browser's settings"],
    SecurityError: ["permission_denied", "the microphone is blocked for this page; allow it in the browser's settings"],
    NotFoundError: ["no_microphone", "no microphone was found; plug one in and try again"],
    OverconstrainedError: ["no_microphone", "no microphone fits the constraints"],
    NotReadableError: ["microphone_busy", "the microphone cannot be read; another program may be using it"],
};
function microphoneError(error) {
    if (error instanceof TuttiError) {
        return error;
    }
    const name = error instanceof Error ? error.name : "";
    const [code, message] = SENTENCES[name] ?? ["microphone_failed", `the microphone cannot be used: ${String(error)}`];
    return new MicrophoneError(code, message, error);
}
