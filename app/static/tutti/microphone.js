/**
 * Records the microphone as chunks of 16-bit PCM, for the caller to send, and tells when no audio comes from it and why.
 * What browsers, systems and phone calls take away, it takes back as soon as they allow it.
 */
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
    const open = options.openStream ?? (() => devices.getUserMedia({ audio: { ...CONSTRAINTS, ...options.constraints } }));
    const granted = open();
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
        return new Microphone(stream, context, open, options.keepScreenOn ?? false);
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
    #context;
    #node;
    /** Opens the device again after it was disconnected. */
    #open;
    #screen;
    #stream;
    #source;
    #state = "live";
    #isOpening = false;
    #onFlushed;
    #onLost;
    #onState;
    #onNews = () => this.#update();
    /** @internal Use `openMicrophone`. */
    constructor(stream, context, open, keepScreenOn) {
        this.sampleRate = context.sampleRate;
        this.#stream = stream;
        this.#context = context;
        this.#open = open;
        this.#screen = keepScreenOn ? new ScreenLock() : undefined;
        this.#node = new AudioWorkletNode(context, "tutti-pcm-chunks", {
            channelCount: 1,
            channelCountMode: "explicit",
        });
    }
    /** Whether audio comes, and if not, why. */
    get state() {
        return this.#state;
    }
    /**
     * Begins to record. `onChunk` is called with about 100 ms of mono 16-bit PCM at a time. `onState` is called when
     * `state` changes. `onLost` is called once if the user withdraws the permission: the microphone has stopped then.
     */
    start(onChunk, onLost, onState) {
        this.#onLost = onLost;
        this.#onState = onState;
        this.#node.port.onmessage = (message) => {
            if (message.data.length === 0) {
                this.#onFlushed?.();
            }
            else if (this.#state !== "stopped") {
                onChunk(message.data);
            }
        };
        // The worklet writes nothing, so this plays silence. Some browsers run only nodes that lead to the destination.
        this.#node.connect(this.#context.destination);
        for (const [target, type] of newsOf(this.#context)) {
            target.addEventListener(type, this.#onNews);
        }
        this.#use(this.#stream);
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
        if (this.#state === "stopped") {
            return;
        }
        this.#setState("stopped");
        this.#onFlushed?.();
        for (const [target, type] of newsOf(this.#context)) {
            target.removeEventListener(type, this.#onNews);
        }
        this.#screen?.release();
        this.#node.port.onmessage = null;
        this.#node.disconnect();
        stopTracks(this.#stream);
        void this.#context.close();
    }
    /** Records this stream from now on. */
    #use(stream) {
        const source = this.#context.createMediaStreamSource(stream);
        this.#source?.disconnect();
        this.#source = source;
        this.#stream = stream;
        source.connect(this.#node);
        for (const track of stream.getAudioTracks()) {
            track.onended = track.onmute = track.onunmute = this.#onNews;
        }
        this.#update();
    }
    /** Finds out the present state, and does what brings the audio back. */
    #update() {
        if (this.#state === "stopped") {
            return;
        }
        const state = this.#observe();
        this.#setState(state);
        this.#screen?.hold();
        if (state === "disconnected") {
            void this.#reopen();
        }
        else if (state === "suspended" || state === "interrupted") {
            // It fails, or waits, until the browser allows it. The next news tries again.
            this.#context.resume().catch(() => { });
        }
    }
    #observe() {
        const [track] = this.#stream.getAudioTracks();
        if (track === undefined || track.readyState === "ended") {
            return "disconnected";
        }
        // Not all versions of TypeScript's DOM library know that Safari interrupts.
        const context = this.#context.state;
        if (context !== "running") {
            return context === "interrupted" ? "interrupted" : "suspended";
        }
        return track.muted ? "muted" : "live";
    }
    #setState(state) {
        if (state !== this.#state) {
            this.#state = state;
            this.#onState?.(state);
        }
    }
    /** Opens the device again, or another one. Without any, the next change of the devices tries again. */
    async #reopen() {
        if (this.#isOpening) {
            return;
        }
        this.#isOpening = true;
        let stream;
        try {
            stream = await this.#open();
            if (this.state === "stopped") {
                stopTracks(stream);
            }
            else {
                this.#use(stream);
            }
        }
        catch (error) {
            stream?.getTracks().forEach((track) => track.stop());
            const reason = microphoneError(error);
            if (reason.code === "permission_denied" && this.state !== "stopped") {
                this.stop();
                this.#onLost?.(reason);
            }
        }
        finally {
            this.#isOpening = false;
        }
    }
}
/** Where the browser reports what may change the microphone's state, or what may bring it back. */
function newsOf(context) {
    const { document, navigator } = globalThis;
    return [
        [context, "statechange"],
        [navigator.mediaDevices, "devicechange"],
        [document, "visibilitychange"],
        // Browsers that suspended a page's audio may want a gesture before they resume it.
        [document, "pointerup"],
        [document, "keydown"],
    ];
}
/** Keeps the screen on. The browser takes the lock away when the page is hidden. */
class ScreenLock {
    #lock;
    /** Asks for the lock if it is not held and the page is visible. */
    hold() {
        if (this.#lock === undefined && globalThis.document.visibilityState === "visible") {
            this.#lock = this.#request();
        }
    }
    release() {
        void this.#lock?.then((held) => held?.release());
        this.#lock = undefined;
    }
    async #request() {
        try {
            const held = await globalThis.navigator.wakeLock.request("screen");
            held.addEventListener("release", () => {
                this.#lock = undefined;
            });
            return held;
        }
        catch {
            // Not all browsers have it, and one that saves power refuses: the screen may turn off then.
            this.#lock = undefined;
            return undefined;
        }
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
        track.onended = track.onmute = track.onunmute = null;
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
