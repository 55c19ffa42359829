import { MicrophoneError, TuttiError } from "./errors.js";
import { throwIfAborted, within } from "./signal.js";
const MAX_SAMPLE_RATE = 48_000;
const START_TIMEOUT_MS = 10_000;
const FLUSH_TIMEOUT_MS = 250;
const WATCH_MS = 1_000;
const MAX_QUIET_LOOKS = 5;
const PAGE_NEWS = ["visibilitychange", "pointerup", "keydown"];
const CONSTRAINTS = {
    channelCount: 1,
    autoGainControl: true,
    echoCancellation: false,
    noiseSuppression: false,
};
export async function openMicrophone(options = {}) {
    const { signal } = options;
    throwIfAborted(signal);
    const devices = globalThis.navigator?.mediaDevices;
    if (devices === undefined) {
        throw new MicrophoneError("insecure_page", "browsers give the microphone only to pages on https or localhost");
    }
    const open = options.openStream ?? (() => devices.getUserMedia({ audio: { ...CONSTRAINTS, ...options.constraints } }));
    const granted = open();
    const build = (sampleRate, until) => buildGraph(options.workletUrl, sampleRate, until);
    try {
        const stream = await within(granted, signal);
        const screen = options.keepScreenOn === true ? new (await import("./screen_lock.js")).ScreenLock() : undefined;
        return new Microphone(stream, await build(undefined, signal), { open, build, screen });
    }
    catch (error) {
        granted.then(stopTracks, () => { });
        throw microphoneError(error);
    }
}
async function buildGraph(workletUrl, sampleRate, signal) {
    const context = openContext(sampleRate);
    try {
        const loaded = context.audioWorklet.addModule(workletUrl ?? new URL("./worklet.js", import.meta.url));
        await within(loaded, signal, START_TIMEOUT_MS);
        if (sampleRate === undefined) {
            await within(context.resume(), signal, START_TIMEOUT_MS);
        }
        const node = new AudioWorkletNode(context, "tutti-pcm-chunks", { channelCount: 1, channelCountMode: "explicit" });
        node.connect(context.destination);
        return { context, node };
    }
    catch (error) {
        void context.close();
        throw error;
    }
}
export class Microphone {
    #parts;
    #graph;
    #stream;
    #source;
    #state = "live";
    #nRepairs = 0;
    #nQuietLooks = 0;
    #watch;
    #onFlushed;
    #onChunk;
    #onLost;
    #onState;
    #onNews = () => this.#update();
    #onPageNews = () => this.#update(globalThis.document.visibilityState === "visible");
    constructor(stream, graph, parts) {
        this.sampleRate = graph.context.sampleRate;
        this.#stream = stream;
        this.#graph = graph;
        this.#parts = parts;
    }
    get state() {
        return this.#state;
    }
    start(onChunk, onLost, onState) {
        this.#onChunk = onChunk;
        this.#onLost = onLost;
        this.#onState = onState;
        this.#attach();
        globalThis.navigator.mediaDevices.addEventListener("devicechange", this.#onNews);
        PAGE_NEWS.forEach((type) => globalThis.document.addEventListener(type, this.#onPageNews));
        this.#watch = setInterval(() => this.#check(), WATCH_MS);
        this.#use(this.#stream);
    }
    flush() {
        return new Promise((resolve) => {
            const timer = setTimeout(resolve, FLUSH_TIMEOUT_MS);
            this.#onFlushed = () => {
                clearTimeout(timer);
                resolve();
            };
            this.#graph.node.port.postMessage("flush");
        });
    }
    stop() {
        if (this.#state === "stopped") {
            return;
        }
        this.#setState("stopped");
        this.#onFlushed?.();
        globalThis.navigator.mediaDevices.removeEventListener("devicechange", this.#onNews);
        PAGE_NEWS.forEach((type) => globalThis.document.removeEventListener(type, this.#onPageNews));
        clearInterval(this.#watch);
        this.#parts.screen?.release();
        stopTracks(this.#stream);
        this.#detach();
    }
    #attach() {
        const { context, node } = this.#graph;
        context.addEventListener("statechange", this.#onNews);
        node.port.onmessage = (message) => {
            if (message.data.length === 0) {
                this.#onFlushed?.();
            }
            else if (this.#state !== "stopped") {
                this.#nQuietLooks = 0;
                this.#onChunk?.(message.data);
            }
        };
    }
    #detach() {
        const { context, node } = this.#graph;
        node.port.onmessage = null;
        node.disconnect();
        void context.close();
    }
    #use(stream) {
        const source = this.#graph.context.createMediaStreamSource(stream);
        this.#source?.disconnect();
        this.#source = source;
        this.#stream = stream;
        source.connect(this.#graph.node);
        for (const track of stream.getAudioTracks()) {
            track.onended = track.onmute = track.onunmute = this.#onNews;
        }
        this.#update();
    }
    #update(isWanted = false) {
        if (this.#state === "stopped") {
            return;
        }
        const state = this.#observe();
        this.#setState(state);
        this.#parts.screen?.hold();
        if (state === "disconnected") {
            void this.#mend(() => this.#reopen());
        }
        else if (state === "suspended" || (state === "interrupted" && isWanted)) {
            this.#graph.context.resume().catch(() => { });
        }
    }
    #check() {
        const isLive = this.#observe() === "live" && globalThis.document.visibilityState === "visible";
        this.#nQuietLooks = isLive ? this.#nQuietLooks + 1 : 0;
        if (this.#nQuietLooks >= MAX_QUIET_LOOKS) {
            this.#nQuietLooks = 0;
            this.#setState("suspended");
            void this.#mend(() => this.#rebuild());
        }
    }
    #observe() {
        const [track] = this.#stream.getAudioTracks();
        if (track === undefined || track.readyState === "ended") {
            return "disconnected";
        }
        const context = this.#graph.context.state;
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
    async #reopen() {
        const stream = await this.#parts.open();
        if (this.state === "stopped") {
            stopTracks(stream);
            return;
        }
        try {
            this.#use(stream);
        }
        catch (error) {
            stopTracks(stream);
            throw error;
        }
    }
    async #rebuild() {
        const graph = await this.#parts.build(this.sampleRate);
        if (this.state !== "stopped") {
            this.#detach();
            this.#graph = graph;
            this.#attach();
            this.#use(this.#stream);
        }
        else {
            void graph.context.close();
        }
    }
    async #mend(repair) {
        if (this.#nRepairs++ > 0) {
            return;
        }
        try {
            await repair();
        }
        catch (error) {
            const reason = microphoneError(error);
            if (reason.code === "permission_denied" && this.state !== "stopped") {
                this.stop();
                this.#onLost?.(reason);
            }
        }
        const hasNews = this.#nRepairs > 1;
        this.#nRepairs = 0;
        if (hasNews && this.state === "disconnected") {
            this.#update();
        }
    }
}
function openContext(sampleRate) {
    const context = new AudioContext({ sampleRate });
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
const BLOCKED = [
    "permission_denied",
    "the microphone is blocked for this page; allow it in the browser's settings",
];
const SENTENCES = {
    NotAllowedError: BLOCKED,
    SecurityError: BLOCKED,
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
