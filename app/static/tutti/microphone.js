/** The microphone as chunks of 16-bit PCM. What is done with them is left to the caller. */
import { AbortedError, MicrophoneError, TuttiError } from "./errors.js";
/** The highest rate the server takes; a context that runs faster is opened again at this one. */
const MAX_SAMPLE_RATE = 48_000;
const START_TIMEOUT_MS = 10_000;
/** The audio thread answers within a few blocks of 3 ms; a suspended one never does. */
const FLUSH_TIMEOUT_MS = 250;
const CONSTRAINTS = {
    channelCount: 1,
    autoGainControl: true,
    echoCancellation: false,
    noiseSuppression: false,
};
/**
 * Asks for the microphone; call it from a click. Nothing is captured before `start`.
 *
 * @throws MicrophoneError with code `insecure_page`, `permission_denied`, `no_microphone`, `microphone_busy` or
 *   `microphone_failed`; AbortedError.
 */
export async function openMicrophone(options = {}) {
    const { signal } = options;
    // Absent on pages that are not secure, whatever the type says.
    const devices = globalThis.navigator?.mediaDevices;
    if (devices === undefined) {
        throw new MicrophoneError("insecure_page", "browsers give the microphone only to pages on https or localhost");
    }
    const audio = { ...CONSTRAINTS, ...options.constraints };
    const asked = devices.getUserMedia({ audio });
    let stream;
    try {
        stream = await within(asked, signal);
    }
    catch (error) {
        // The question stays on the screen after an abort; an answer that comes later must not leave the microphone on.
        asked.then(stopTracks, () => { });
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
/** Made by `openMicrophone`. */
export class Microphone {
    /** For `start.audio.sample_rate`; at most 48 kHz. */
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
     * Begins to capture. `onChunk` gets about 100 ms of mono 16-bit PCM at a time; `onLost` is called once if the device
     * goes away or permission is taken back.
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
        // Silence, since the worklet writes nothing; but some browsers run only what leads to the destination.
        this.#node.connect(this.#context.destination);
    }
    /** Brings out the last, shorter chunk before `stop()`; resolves in any case within a quarter of a second. */
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
    /** Gives the device back. May be called again. */
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
/** The promise, unless the signal fires or the time is over first. */
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
/** The names a DOMException may have here, as codes and sentences. */
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
