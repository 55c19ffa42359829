/**
 * Records the microphone as chunks of 16-bit PCM, for the caller to send, and tells when no audio comes from it and why.
 * What browsers, systems and phone calls take away, it takes back as soon as they allow it.
 */

import type { AudioSource, AudioState } from "./audio_source.js";
import { MicrophoneError, TuttiError } from "./errors.js";
import type { ScreenLock } from "./screen_lock.js";
import { throwIfAborted, within } from "./signal.js";

/** The highest sample rate that the server accepts. A faster audio context is replaced by one of this rate. */
const MAX_SAMPLE_RATE = 48_000;
/** How long the worklet may take to load, and the audio system of the browser to start. */
const START_TIMEOUT_MS = 10_000;
/** The audio thread answers within a few blocks of 3 ms each; a suspended one never answers. */
const FLUSH_TIMEOUT_MS = 250;
/** How often the microphone is looked at, in milliseconds. */
const WATCH_MS = 1_000;
/**
 * A microphone that should give audio and has given none for this number of looks gets a new audio context. A page that
 * was frozen or busy has missed the looks, too.
 */
const MAX_QUIET_LOOKS = 5;
/** Browsers that suspended or interrupted a page's audio may want one of these before they resume it. */
const PAGE_NEWS = ["visibilitychange", "pointerup", "keydown"];

// A program without the DOM's types, such as one for Node.js, compiles with this package too: they are empty there.
declare global {
  interface AudioContext {}
  interface AudioWorkletNode {}
  interface MediaStream {}
  interface MediaTrackConstraints {}
}

/** The options of `openMicrophone`. */
export interface MicrophoneOptions {
  /** Cancels `openMicrophone`. To close an open microphone, call its `stop()`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Added to the defaults: one channel with automatic gain, but without echo cancellation and noise suppression, which
   * are made for human listeners.
   */
  readonly constraints?: MediaTrackConstraints | undefined;
  /**
   * Opens another source of sound than a microphone, such as the sound of a tab. It is called again when the source has
   * ended; with an error of code `permission_denied`, it says that there is no other. `constraints` have no effect.
   */
  readonly openStream?: (() => Promise<MediaStream>) | undefined;
  /** The address of `worklet.js`, if it is not in the same folder as this module. */
  readonly workletUrl?: string | URL | undefined;
  /**
   * Keeps the screen on from `start` to `stop`, if the browser can. It turns off the lock when the page is hidden; the
   * microphone asks for it again when the page is back. Default: false.
   */
  readonly keepScreenOn?: boolean | undefined;
}

/** Whether audio comes from the microphone, and if not, why. */
export type MicrophoneState = AudioState;

const CONSTRAINTS: MediaTrackConstraints = {
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
export async function openMicrophone(options: MicrophoneOptions = {}): Promise<Microphone> {
  const { signal } = options;
  throwIfAborted(signal);
  // On pages that are not secure it does not exist, although its type says that it does.
  const devices = (globalThis.navigator as Partial<Navigator> | undefined)?.mediaDevices;
  if (devices === undefined) {
    throw new MicrophoneError("insecure_page", "browsers give the microphone only to pages on https or localhost");
  }
  const open = options.openStream ?? (() => devices.getUserMedia({ audio: { ...CONSTRAINTS, ...options.constraints } }));
  const granted = open();
  // A microphone that is open needs no signal any more.
  const build = (sampleRate?: number, until?: AbortSignal) => buildGraph(options.workletUrl, sampleRate, until);
  try {
    const stream = await within(granted, signal);
    // Few pages ask for it, and only these load it.
    const screen = options.keepScreenOn === true ? new (await import("./screen_lock.js")).ScreenLock() : undefined;
    return new Microphone(stream, await build(undefined, signal), { open, build, screen });
  } catch (error) {
    // The microphone must not stay on, also where the browser's question stays on the screen after an abort.
    granted.then(stopTracks, () => {});
    throw microphoneError(error);
  }
}

/** What makes 16-bit PCM of a stream. */
interface Graph {
  readonly context: AudioContext;
  readonly node: AudioWorkletNode;
}

/** @param sampleRate the rate of the context; by default that of the device, if the server takes it. */
async function buildGraph(workletUrl?: string | URL, sampleRate?: number, signal?: AbortSignal): Promise<Graph> {
  const context = openContext(sampleRate);
  try {
    const address = workletUrl ?? new URL("./worklet.js", import.meta.url);
    const loaded = context.audioWorklet.addModule(address).catch((error: unknown) => {
      // An address of data has the module in itself: only a policy stops it. Chromium would tell all of it.
      throw /^data:/i.test(String(address))
        ? new MicrophoneError(
            "microphone_failed",
            "the Content-Security-Policy blocks the worklet; allow data: in script-src, or pass workletUrl",
            error,
          )
        : error;
    });
    await within(loaded, signal, START_TIMEOUT_MS);
    if (sampleRate === undefined) {
      await within(context.resume(), signal, START_TIMEOUT_MS);
    }
    const node = new AudioWorkletNode(context, "tutti-pcm-chunks", { channelCount: 1, channelCountMode: "explicit" });
    // The worklet writes nothing, so this plays silence. Some browsers run only nodes that lead to the destination.
    node.connect(context.destination);
    return { context, node };
  } catch (error) {
    void context.close();
    throw error;
  }
}

/** How a microphone gets what it has lost. */
interface MicrophoneParts {
  /** Opens the device again after it was disconnected. */
  readonly open: () => Promise<MediaStream>;
  /** Builds another graph, where the context of this one gives no audio any more. */
  readonly build: (sampleRate: number) => Promise<Graph>;
  readonly screen: ScreenLock | undefined;
}

/** An open microphone. `openMicrophone` makes it. */
export class Microphone implements AudioSource {
  /** The value for `start.audio.sample_rate`; at most 48 kHz. */
  readonly sampleRate: number;

  readonly #parts: MicrophoneParts;
  #graph: Graph;
  #stream: MediaStream;
  #source: MediaStreamAudioSourceNode | undefined;
  #state: AudioState = "live";
  /** How many repairs were asked for since the present one began, with this one. */
  #nRepairs = 0;
  /** How many looks of the watch have passed since the last chunk. */
  #nQuietLooks = 0;
  #watch: ReturnType<typeof setInterval> | undefined;
  #onFlushed: (() => void) | undefined;
  #onChunk: ((samples: Int16Array<ArrayBuffer>) => void) | undefined;
  #onLost: ((error: TuttiError) => void) | undefined;
  #onState: ((state: AudioState) => void) | undefined;
  readonly #onNews = () => this.#update();
  readonly #onPageNews = () => this.#update(globalThis.document.visibilityState === "visible");

  /** @internal Use `openMicrophone`. */
  constructor(stream: MediaStream, graph: Graph, parts: MicrophoneParts) {
    this.sampleRate = graph.context.sampleRate;
    this.#stream = stream;
    this.#graph = graph;
    this.#parts = parts;
  }

  /** Whether audio comes, and if not, why. */
  get state(): AudioState {
    return this.#state;
  }

  /**
   * Begins to record. `onChunk` is called with about 100 ms of mono 16-bit PCM at a time. `onState` is called when
   * `state` changes. `onLost` is called once if the user withdraws the permission: the microphone has stopped then.
   */
  start(
    // Memory that is not shared, in words that TypeScript before 5.7 knows too.
    onChunk: (samples: ReturnType<typeof Int16Array.of>) => void,
    onLost?: (error: TuttiError) => void,
    onState?: (state: AudioState) => void,
  ): void {
    this.#onChunk = onChunk;
    this.#onLost = onLost;
    this.#onState = onState;
    this.#attach();
    globalThis.navigator.mediaDevices.addEventListener("devicechange", this.#onNews);
    PAGE_NEWS.forEach((type) => globalThis.document.addEventListener(type, this.#onPageNews));
    this.#watch = setInterval(() => this.#check(), WATCH_MS);
    this.#use(this.#stream);
  }

  /** Delivers the last, shorter chunk. Call it before `stop()`. It resolves within 250 ms in any case. */
  flush(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, FLUSH_TIMEOUT_MS);
      this.#onFlushed = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#graph.node.port.postMessage("flush");
    });
  }

  /** Releases the device. A second call has no effect. */
  stop(): void {
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

  /** Takes the chunks of the graph, and its news. */
  #attach(): void {
    const { context, node } = this.#graph;
    context.addEventListener("statechange", this.#onNews);
    node.port.onmessage = (message: MessageEvent<Int16Array<ArrayBuffer>>) => {
      if (message.data.length === 0) {
        this.#onFlushed?.();
      } else if (this.#state !== "stopped") {
        this.#nQuietLooks = 0;
        this.#onChunk?.(message.data);
      }
    };
  }

  #detach(): void {
    const { context, node } = this.#graph;
    node.port.onmessage = null;
    node.disconnect();
    void context.close();
  }

  /** Records this stream from now on. */
  #use(stream: MediaStream): void {
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

  /**
   * Finds out the present state, and does what brings the audio back.
   *
   * @param isWanted whether the user has touched the page, or has it before the eyes again.
   */
  #update(isWanted = false): void {
    if (this.#state === "stopped") {
      return;
    }
    const state = this.#observe();
    this.#setState(state);
    this.#parts.screen?.hold();
    if (state === "disconnected") {
      void this.#mend(() => this.#reopen());
    } else if (state === "suspended" || (state === "interrupted" && isWanted)) {
      // It fails, or waits, until the browser allows it. The next news tries again. During an interruption, only the user
      // knows that it is over: Safari's context may say afterwards that it runs, and give no audio.
      this.#graph.context.resume().catch(() => {});
    }
  }

  /** Looks whether a microphone that says it is live gives audio. After an interruption, some do not. */
  #check(): void {
    const isLive = this.#observe() === "live" && globalThis.document.visibilityState === "visible";
    this.#nQuietLooks = isLive ? this.#nQuietLooks + 1 : 0;
    if (this.#nQuietLooks >= MAX_QUIET_LOOKS) {
      this.#nQuietLooks = 0;
      this.#setState("suspended");
      void this.#mend(() => this.#rebuild());
    }
  }

  #observe(): AudioState {
    const [track] = this.#stream.getAudioTracks();
    if (track === undefined || track.readyState === "ended") {
      return "disconnected";
    }
    // Not all versions of TypeScript's DOM library know that Safari interrupts.
    const context: string = this.#graph.context.state;
    if (context !== "running") {
      return context === "interrupted" ? "interrupted" : "suspended";
    }
    return track.muted ? "muted" : "live";
  }

  #setState(state: AudioState): void {
    if (state !== this.#state) {
      this.#state = state;
      this.#onState?.(state);
    }
  }

  /** Opens the device again, or another one. Without any, the next change of the devices tries again. */
  async #reopen(): Promise<void> {
    const stream = await this.#parts.open();
    if (this.state === "stopped") {
      stopTracks(stream);
      return;
    }
    try {
      this.#use(stream);
    } catch (error) {
      stopTracks(stream);
      throw error;
    }
  }

  /** Makes a new context of the same sample rate, and records with it. */
  async #rebuild(): Promise<void> {
    const graph = await this.#parts.build(this.sampleRate);
    if (this.state !== "stopped") {
      this.#detach();
      this.#graph = graph;
      this.#attach();
      this.#use(this.#stream);
    } else {
      void graph.context.close();
    }
  }

  /**
   * Runs one repair at a time. It may fail, and the next news tries again, also news that came meanwhile; a permission that
   * is withdrawn is the end.
   */
  async #mend(repair: () => Promise<void>): Promise<void> {
    if (this.#nRepairs++ > 0) {
      return;
    }
    try {
      await repair();
    } catch (error) {
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

function openContext(sampleRate?: number): AudioContext {
  const context = new AudioContext({ sampleRate } as AudioContextOptions);
  if (context.sampleRate <= MAX_SAMPLE_RATE) {
    return context;
  }
  void context.close();
  return new AudioContext({ sampleRate: MAX_SAMPLE_RATE });
}

function stopTracks(stream: MediaStream): void {
  for (const track of stream.getTracks()) {
    track.onended = track.onmute = track.onunmute = null;
    track.stop();
  }
}

const BLOCKED = [
  "permission_denied",
  "the microphone is blocked for this page; allow it in the browser's settings",
] as const;

/** The code and message for each name that a DOMException may have here. */
const SENTENCES: Record<string, readonly [code: string, message: string]> = {
  NotAllowedError: BLOCKED,
  SecurityError: BLOCKED,
  NotFoundError: ["no_microphone", "no microphone was found; plug one in"],
  OverconstrainedError: ["no_microphone", "no microphone fits the constraints"],
  NotReadableError: ["microphone_busy", "the microphone cannot be read; another program may be using it"],
};

function microphoneError(error: unknown): TuttiError {
  if (error instanceof TuttiError) {
    return error;
  }
  const [code, message] = SENTENCES[(error as Error | undefined)?.name ?? ""] ?? [
    "microphone_failed",
    `the microphone cannot be used: ${String(error)}`,
  ];
  return new MicrophoneError(code, message, error);
}
