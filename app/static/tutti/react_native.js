import { base64Bytes } from "./base64.js";
import { MicrophoneError } from "./errors.js";
const SAMPLE_RATE = 16_000;
const QUIET_MS = 2_000;
const INT16_MAX = 32_767;
export class RecorderSource {
    #recorder;
    #state = "live";
    #isStarted = false;
    #isRestarting = false;
    #half;
    #timer;
    #onChunk;
    #onLost;
    #onState;
    constructor(recorder, sampleRate = SAMPLE_RATE) {
        this.#recorder = recorder;
        this.sampleRate = sampleRate;
    }
    get state() {
        return this.#state;
    }
    start(onChunk, onLost, onState) {
        this.#onChunk = onChunk;
        this.#onLost = onLost;
        this.#onState = onState;
        this.#isStarted = true;
        this.#begin();
    }
    restart() {
        if (this.#isStarted && !this.#isRestarting && this.#state !== "stopped") {
            this.#isRestarting = true;
            void this.#release().then(() => {
                this.#isRestarting = false;
                this.#begin();
            });
        }
    }
    stop() {
        if (this.#state !== "stopped") {
            this.#setState("stopped");
            clearTimeout(this.#timer);
            if (this.#isStarted) {
                void this.#release();
            }
        }
    }
    async #release() {
        try {
            await this.#recorder.stop();
        }
        catch {
        }
    }
    #begin() {
        if (this.#state === "stopped") {
            return;
        }
        this.#half = undefined;
        this.#watch();
        const events = {
            onData: (data) => this.#take(data),
            onState: (state) => this.#setState(state),
            onError: (error) => this.#fail(error),
        };
        const begin = async () => {
            await this.#recorder.start(events);
            if (this.state === "stopped") {
                await this.#recorder.stop();
            }
        };
        begin().catch((error) => this.#fail(error));
    }
    #take(data) {
        if (this.#state === "stopped") {
            return;
        }
        let samples;
        try {
            samples = this.#samplesOf(data);
        }
        catch (error) {
            this.#fail(error);
            return;
        }
        if (samples.length > 0) {
            this.#watch();
            this.#setState("live");
            this.#onChunk?.(samples);
        }
    }
    #samplesOf(data) {
        if (data instanceof Int16Array) {
            return data;
        }
        if (data instanceof Float32Array) {
            return Int16Array.from(data, (sample) => Math.round(Math.max(-1, Math.min(1, sample)) * INT16_MAX));
        }
        if (typeof data !== "string") {
            throw new TypeError(`audio of the recorder: expected base64 text or samples, got ${typeof data}`);
        }
        const bytes = [...(this.#half === undefined ? [] : [this.#half]), ...base64Bytes(data)];
        this.#half = bytes.length % 2 === 0 ? undefined : bytes.pop();
        return new Int16Array(Uint8Array.from(bytes).buffer);
    }
    #watch() {
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.#setState("interrupted"), QUIET_MS);
    }
    #setState(state) {
        if (this.#state !== "stopped" && state !== this.#state) {
            this.#state = state;
            this.#onState?.(state);
        }
    }
    #fail(cause) {
        if (this.#state !== "stopped") {
            this.stop();
            const message = `the recorder failed: ${cause instanceof Error ? cause.message : String(cause)}`;
            this.#onLost?.(new MicrophoneError("microphone_failed", message, cause));
        }
    }
}
export function fromLiveAudioStream(stream, options = {}) {
    const { sampleRate = SAMPLE_RATE } = options;
    const recorder = {
        start({ onData }) {
            stream.init({ ...options, sampleRate, channels: 1, bitsPerSample: 16 });
            stream.on("data", onData);
            stream.start();
        },
        stop: () => stream.stop(),
    };
    return new RecorderSource(recorder, sampleRate);
}
const REASONS = {
    phoneCall: "interrupted",
    phoneCallEnded: "interrupted",
    audioFocusLoss: "interrupted",
    audioFocusGain: "interrupted",
    deviceDisconnected: "disconnected",
    deviceSwitchFailed: "disconnected",
};
export function fromAudioStudio(studio, more = {}) {
    const sampleRate = more.sampleRate ?? SAMPLE_RATE;
    const recorder = {
        async start({ onData, onState, onError }) {
            const started = await studio.startRecording({
                interval: 100,
                keepAwake: true,
                autoResumeAfterInterruption: true,
                ...more,
                sampleRate,
                channels: 1,
                encoding: "pcm_16bit",
                onAudioStream: async ({ data }) => onData(data),
                onRecordingInterrupted: ({ reason, isPaused }) => {
                    if (reason === "recordingStopped") {
                        onError(new Error("the system or another application has stopped the recording"));
                    }
                    else {
                        onState(isPaused ? (REASONS[reason] ?? "interrupted") : "live");
                    }
                },
            });
            if (started.sampleRate !== undefined && started.sampleRate !== sampleRate) {
                throw new Error(`expected a sample rate of ${sampleRate} Hz, got ${started.sampleRate} Hz`);
            }
        },
        stop: () => studio.stopRecording(),
    };
    return new RecorderSource(recorder, sampleRate);
}
