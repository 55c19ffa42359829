/**
 * Audio recorders of React Native as sources of a session: the entry point `tutti-asr-client/react-native`. It imports no
 * recorder: the application passes its own one. The names and events of the two that are known here are those of their
 * documentation: `react-native-live-audio-stream` 1.1, and `@siteed/audio-studio` 3 (before: `@siteed/expo-audio-studio`).
 */

import type { AudioSource, AudioState } from "./audio_source.js";
import { base64Bytes } from "./base64.js";
import { MicrophoneError, type TuttiError } from "./errors.js";

/** The sample rate that Whisper works with: a phone sends no more than is needed. */
const SAMPLE_RATE = 16_000;
/** A recorder that has given no audio for this time, in milliseconds, is taken for interrupted. */
const QUIET_MS = 2_000;
const INT16_MAX = 32_767;

/** What a recorder reports. */
export interface RecorderEvents {
  /** Mono audio: 16-bit PCM as base64 text or as samples, or samples from -1 to 1. */
  readonly onData: (data: string | Int16Array | Float32Array) => void;
  /** Audio comes no more, or again. Data says by itself that audio comes. */
  readonly onState: (state: AudioState) => void;
  /** The recorder has ended and cannot begin again. */
  readonly onError: (error: unknown) => void;
}

/** Any recorder: what a source needs of it. */
export interface Recorder {
  /** Begins to record. It may be called again after `stop`. */
  start(events: RecorderEvents): void | Promise<void>;
  stop(): unknown;
}

/** A recorder as the source of a session. */
export class RecorderSource implements AudioSource {
  readonly sampleRate: number;
  readonly #recorder: Recorder;
  #state: AudioState = "live";
  #isStarted = false;
  #isRestarting = false;
  /** The last byte of a chunk that ended in the middle of a sample. */
  #half: number | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #onChunk: ((samples: Int16Array) => void) | undefined;
  #onLost: ((error: TuttiError) => void) | undefined;
  #onState: ((state: AudioState) => void) | undefined;

  /** @param sampleRate what the recorder gives, from 8000 to 48000. */
  constructor(recorder: Recorder, sampleRate: number = SAMPLE_RATE) {
    this.#recorder = recorder;
    this.sampleRate = sampleRate;
  }

  get state(): AudioState {
    return this.#state;
  }

  start(
    onChunk: (samples: Int16Array) => void,
    onLost?: (error: TuttiError) => void,
    onState?: (state: AudioState) => void,
  ): void {
    this.#onChunk = onChunk;
    this.#onLost = onLost;
    this.#onState = onState;
    this.#isStarted = true;
    this.#begin();
  }

  /**
   * Stops the recorder and starts it again. Call it when the application is active again (`AppState`) and `state` is not
   * `live`: not every recorder goes on by itself after a phone call. A call during another one has no effect.
   */
  restart(): void {
    if (this.#isStarted && !this.#isRestarting && this.#state !== "stopped") {
      this.#isRestarting = true;
      void this.#release().then(() => {
        this.#isRestarting = false;
        this.#begin();
      });
    }
  }

  stop(): void {
    if (this.#state !== "stopped") {
      this.#setState("stopped");
      clearTimeout(this.#timer);
      if (this.#isStarted) {
        void this.#release();
      }
    }
  }

  async #release(): Promise<void> {
    try {
      await this.#recorder.stop();
    } catch {
      // A recorder that has failed, or was stopped by the system, may refuse to be stopped.
    }
  }

  #begin(): void {
    if (this.#state === "stopped") {
      return;
    }
    this.#half = undefined;
    this.#watch();
    const events: RecorderEvents = {
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
    begin().catch((error: unknown) => this.#fail(error));
  }

  #take(data: string | Int16Array | Float32Array): void {
    if (this.#state === "stopped") {
      return;
    }
    let samples: Int16Array;
    try {
      samples = this.#samplesOf(data);
    } catch (error) {
      this.#fail(error);
      return;
    }
    if (samples.length > 0) {
      this.#watch();
      this.#setState("live");
      this.#onChunk?.(samples);
    }
  }

  #samplesOf(data: string | Int16Array | Float32Array): Int16Array {
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

  #watch(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#setState("interrupted"), QUIET_MS);
  }

  #setState(state: AudioState): void {
    if (this.#state !== "stopped" && state !== this.#state) {
      this.#state = state;
      this.#onState?.(state);
    }
  }

  #fail(cause: unknown): void {
    if (this.#state !== "stopped") {
      this.stop();
      const message = `the recorder failed: ${cause instanceof Error ? cause.message : String(cause)}`;
      this.#onLost?.(new MicrophoneError("microphone_failed", message, cause));
    }
  }
}

/** The default export of `react-native-live-audio-stream`, as its documentation describes it. */
export interface LiveAudioStream {
  init(options: LiveAudioStreamOptions): void;
  start(): void;
  stop(): unknown;
  on(event: "data", listener: (base64: string) => void): unknown;
}

/** Its options. */
export interface LiveAudioStreamOptions {
  readonly sampleRate: number;
  readonly channels: number;
  readonly bitsPerSample: number;
  readonly audioSource?: number;
  readonly bufferSize?: number;
}

/**
 * A source of `react-native-live-audio-stream`. The application has asked for the permission before.
 *
 * @param options `sampleRate`, by default 16000; `audioSource`, of Android; `bufferSize` in bytes.
 */
export function fromLiveAudioStream(
  stream: LiveAudioStream,
  options: Partial<Omit<LiveAudioStreamOptions, "channels" | "bitsPerSample">> = {},
): RecorderSource {
  const { sampleRate = SAMPLE_RATE } = options;
  const recorder: Recorder = {
    start({ onData }) {
      stream.init({ ...options, sampleRate, channels: 1, bitsPerSample: 16 });
      stream.on("data", onData);
      stream.start();
    },
    stop: () => stream.stop(),
  };
  return new RecorderSource(recorder, sampleRate);
}

/** What `useAudioRecorder()` of `@siteed/audio-studio` returns, as its documentation describes it. */
export interface AudioStudio {
  startRecording(config: AudioStudioConfig): Promise<{ readonly sampleRate?: number | undefined }>;
  stopRecording(): Promise<unknown>;
}

/** The part of its configuration that this module sets. */
export interface AudioStudioConfig {
  readonly sampleRate: 16_000 | 44_100 | 48_000;
  readonly channels: 1;
  readonly encoding: "pcm_16bit";
  /** Milliseconds between two events. */
  readonly interval: number;
  readonly keepAwake: boolean;
  readonly autoResumeAfterInterruption: boolean;
  readonly onAudioStream: (event: { readonly data: string | Int16Array | Float32Array }) => Promise<void>;
  readonly onRecordingInterrupted: (event: { readonly reason: string; readonly isPaused: boolean }) => void;
}

/** The state that each reason of an interruption means, while the recording is paused. Others change nothing. */
const REASONS: Readonly<Record<string, AudioState>> = {
  phoneCall: "interrupted",
  phoneCallEnded: "interrupted",
  audioFocusLoss: "interrupted",
  audioFocusGain: "interrupted",
  deviceDisconnected: "disconnected",
  deviceSwitchFailed: "disconnected",
};

/**
 * A source of `@siteed/audio-studio`. The application has asked for the permission before. The recording goes on by itself
 * after a phone call (`autoResumeAfterInterruption`), and in the background where the application may (`keepAwake`).
 *
 * @param more other fields of the configuration, such as `ios` and `android`.
 */
export function fromAudioStudio(
  studio: AudioStudio,
  more: { readonly sampleRate?: AudioStudioConfig["sampleRate"]; readonly [field: string]: unknown } = {},
): RecorderSource {
  const sampleRate = more.sampleRate ?? SAMPLE_RATE;
  const recorder: Recorder = {
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
          } else {
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
