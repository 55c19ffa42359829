/**
 * `<tutti-captions>`: captions in any page. It shows the events that the page gives it, those of the microphone, or those
 * of a room.
 */

import { AbortedError, type ApiKey, type MicrophoneState, type Notice, type Session, type StartOptions, UsageError } from "../index.js";
import { CaptionsView, type ViewOptions } from "./captions_view.js";
import { type CaptionEvent, checkEvent, type RoomEvent } from "./events.js";
import type { Show } from "./line_view.js";
import { RoomReader, type RoomState } from "./room_reader.js";
import { Speaker, type SpeakerState } from "./speaker.js";
import { type CaptionLine, type Change, Transcript } from "./transcript.js";

/** What the element does at present. `idle`: it shows what it is given. `failed`: `tutti-error` has the reason. */
export type CaptionsState = "idle" | "failed" | RoomState | SpeakerState;

/** The texts that the element shows by itself. A state without a text shows none. */
export interface CaptionsTexts {
  readonly latest: string;
  /** Stands in the place of lost audio; `{time}` is its end. */
  readonly gap: string;
  /** `listening` is shown while a session of the microphone is `live`. */
  readonly states: Readonly<Partial<Record<CaptionsState | MicrophoneState | "listening", string>>>;
}

/** The detail of `tutti-start`: the session of the microphone, or the room. */
export type CaptionsStartEvent = CustomEvent<{ readonly session?: Session; readonly room?: RoomEvent }>;
/** The detail of `tutti-state`. `microphone` is there while the microphone is open. */
export type CaptionsStateEvent = CustomEvent<{ readonly state: CaptionsState; readonly microphone?: MicrophoneState }>;
/** The detail of `tutti-line`: a line has become final, or its translation has changed. */
export type CaptionsLineEvent = CustomEvent<{ readonly line: CaptionLine }>;
/** The detail of `tutti-warning`: what the server wants its client to know. */
export type CaptionsWarningEvent = CustomEvent<Notice>;
/** The detail of `tutti-error`: mostly a `TuttiError`, which has a `code`. */
export type CaptionsErrorEvent = CustomEvent<{ readonly error: unknown }>;

const TEXTS: CaptionsTexts = {
  latest: "Jump to latest",
  gap: "(The audio until {time} is lost.)",
  states: {
    asking: "Waiting for the microphone…",
    connecting: "Connecting…",
    listening: "Listening",
    waiting: "Waiting for the speaker…",
    reconnecting: "Connection lost. Reconnecting…",
    finishing: "Finishing…",
    ended: "The captions have ended.",
    muted: "The microphone is muted.",
    suspended: "The browser has paused the microphone. Tap or click this page to continue.",
    interrupted: "The system uses the microphone for something else, such as a phone call.",
    disconnected: "The microphone is gone. Plug it in again, or another one.",
  },
};
/** Changes of these attributes connect to another room. */
const PLACES = ["server", "room"];
/** Changes of these attributes show the lines anew. */
const LOOKS = ["lines", "size", "language", "show", "labels", "times", "clear-after"];
const THEMES = ["light", "dark", "contrast"];

// Where pages are rendered on a server, the class can be imported, and is not used.
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

/** The element. docs/captions_element.md lists its attributes, events, parts and custom properties. */
export class TuttiCaptions extends Base {
  static readonly observedAttributes: readonly string[] = [...PLACES, ...LOOKS, "theme"];

  /** The key or client secret for sessions of the microphone, or a function that is asked for one before each connection. */
  declare apiKey: ApiKey | undefined;
  /** Fields of `start` for sessions of the microphone, in addition to those that the attributes make. */
  declare startOptions: StartOptions | undefined;

  readonly #transcript = new Transcript();
  readonly #view: CaptionsView;
  readonly #warned = new Set<string>();
  #texts = TEXTS;
  #state: CaptionsState = "idle";
  #microphone: MicrophoneState | undefined;
  #reader: RoomReader | undefined;
  #speaker: Speaker | undefined;
  /** Resolve when the present session of the microphone is open, and when it has ended. Neither rejects. */
  #sessions: { readonly opened: Promise<void>; readonly ended: Promise<void> } | undefined;
  /** Where the next session of the microphone begins, so that times never run backwards. */
  #clockS = 0;
  #isPlanned = false;

  constructor() {
    super();
    this.#view = new CaptionsView(this.attachShadow({ mode: "open" }), this.#transcript, this.#options);
    this.#showStatus();
    if (Object.hasOwn(this, "texts")) {
      // The page has assigned them before the element was defined; its property would hide the accessor.
      const { texts } = this;
      Reflect.deleteProperty(this, "texts");
      this.texts = texts;
    }
  }

  /** The text so far. */
  get captions(): Transcript {
    return this.#transcript;
  }

  /** What the element does at present. */
  get state(): CaptionsState {
    return this.#state;
  }

  /** The texts that the element shows by itself. What is assigned replaces single ones. */
  get texts(): CaptionsTexts {
    return this.#texts;
  }

  set texts(texts: Partial<CaptionsTexts>) {
    this.#texts = { ...this.#texts, ...texts, states: { ...this.#texts.states, ...texts.states } };
    this.#view.render(this.#options);
    this.#showStatus();
  }

  /**
   * Shows an event of a session, of a room, or a translation. An event that was shown already changes nothing. The event
   * `started` begins another session, whose utterances are counted anew.
   *
   * @throws ProtocolError if a field is missing or wrong.
   */
  apply(event: CaptionEvent): void {
    this.#apply(checkEvent(event), true);
  }

  /** Removes all text. */
  clear(): void {
    this.#transcript.clear();
    this.#view.clear();
  }

  /**
   * Opens the microphone and a session on `server`. Call it from a click. Resolves when captions come, or when it has
   * failed: the event `tutti-error` has the reason. While a session is open, there is no other one.
   *
   * @throws UsageError if the element shows a room.
   */
  async start(): Promise<void> {
    if (this.hasAttribute("room")) {
      throw new UsageError("shows_room", "start: expected an element without the attribute room, which is for readers");
    }
    if (this.#sessions === undefined) {
      let onOpen = () => {};
      const opened = new Promise<void>((resolve) => {
        onOpen = resolve;
      });
      this.#sessions = { opened, ended: this.#speak(onOpen) };
    }
    await this.#sessions.opened;
  }

  /** Closes the microphone. Resolves when all that was said is final, which takes a bounded time. */
  async stop(): Promise<void> {
    // A start in the same moment has no state before this.
    await Promise.resolve();
    if (this.#state === "asking" || this.#state === "connecting") {
      this.#speaker?.close();
    } else if (this.#state !== "finishing") {
      await this.#speaker?.finish();
    }
    await this.#sessions?.ended;
  }

  connectedCallback(): void {
    this.#plan();
  }

  disconnectedCallback(): void {
    this.#plan();
  }

  /** The element was moved to another document, such as that of a window which stays on top. */
  adoptedCallback(): void {
    this.#view.adoptStyle();
  }

  attributeChangedCallback(name: string, before: string | null, after: string | null): void {
    if (before === after) {
      return;
    }
    if (LOOKS.includes(name)) {
      this.#view.render(this.#options);
    } else if (name === "theme") {
      // The style has them. With another one, the element has the colours of the page.
      if (after !== null && !THEMES.includes(after)) {
        this.#warn(name, "light, dark or contrast", after);
      }
    } else {
      this.#leaveRoom();
      this.#plan();
    }
  }

  /** Connects or disconnects soon: not for an element that is only moved, and once for several attributes. */
  #plan(): void {
    if (this.#isPlanned) {
      return;
    }
    this.#isPlanned = true;
    queueMicrotask(() => {
      this.#isPlanned = false;
      if (!this.isConnected) {
        this.#speaker?.close();
        this.#leaveRoom();
      } else if (this.#reader === undefined && this.hasAttribute("room")) {
        this.#read(this.getAttribute("room") ?? "");
      }
    });
  }

  #leaveRoom(): void {
    if (this.#reader !== undefined) {
      this.#reader.close();
      this.#reader = undefined;
      this.#show("idle");
    }
  }

  #read(room: string): void {
    this.clear();
    this.#speaker?.close();
    try {
      this.#reader = new RoomReader(this.#server, room, {
        onEvent: (event, isHistory) => this.#apply(event, !isHistory),
        onState: (state) => this.#show(state),
        onError: (error) => this.#dispatch("tutti-error", { error }),
      });
    } catch (error) {
      this.#fail(error);
    }
  }

  /** One session of the microphone, from its beginning to its end. */
  async #speak(onOpen: () => void): Promise<void> {
    let speaker: Speaker | undefined;
    let reason: unknown;
    // What fails at once fails after the caller knows that a session was tried.
    await Promise.resolve();
    try {
      speaker = new Speaker(this.#speakerOptions, {
        onEvent: (event) => this.#apply(event, true),
        onState: (state) => this.#show(state),
        onMicrophone: (state) => {
          this.#show(this.#state, state);
        },
      });
      this.#speaker = speaker;
      const session = await speaker.open();
      this.#dispatch("tutti-start", { session });
      onOpen();
      await speaker.run(session);
    } catch (error) {
      reason = error;
    }
    this.#clockS = speaker?.untilS ?? this.#clockS;
    this.#speaker = undefined;
    this.#sessions = undefined;
    this.#update(this.#transcript.endSession(), false);
    if (reason === undefined || reason instanceof AbortedError) {
      this.#microphone = undefined;
      this.#show("idle");
    } else {
      this.#fail(reason);
    }
    onOpen();
    this.#dispatch("tutti-end", null);
  }

  #apply(event: CaptionEvent, isSpoken: boolean): void {
    if (event.type === "room" && event.resumed === false) {
      // All of the room's text follows. It may be another room of the same name, whose utterances have the same numbers.
      this.clear();
    }
    this.#update(this.#transcript.apply(event), isSpoken);
    if (event.type === "reconnecting") {
      this.#show("reconnecting");
    } else if (event.type === "resumed") {
      this.#show(this.#speaker?.state ?? "idle");
    } else if (event.type === "warning" || event.type === "error") {
      this.#dispatch("tutti-warning", { code: event.code, message: event.message });
    } else if (event.type === "room") {
      this.#dispatch("tutti-start", { room: event });
    } else if (event.type === "ended") {
      this.#update(this.#transcript.endSession(), false);
      this.#dispatch("tutti-end", null);
    }
  }

  #update(changes: readonly Change[], isSpoken: boolean): void {
    this.#view.update(changes, isSpoken);
    for (const { line, kind } of changes) {
      if (kind === "final" || kind === "translated") {
        this.#dispatch("tutti-line", { line });
      }
    }
  }

  #show(state: CaptionsState, microphone = this.#microphone): void {
    if (state !== this.#state || microphone !== this.#microphone) {
      this.#state = state;
      this.#microphone = microphone;
      this.#showStatus();
      this.#dispatch("tutti-state", microphone === undefined ? { state } : { state, microphone });
    }
  }

  #showStatus(): void {
    const { states } = this.#texts;
    const trouble = this.#microphone === undefined ? undefined : states[this.#microphone];
    const isListening = this.#state === "live" && this.#speaker !== undefined;
    this.#view.showStatus(trouble ?? states[isListening ? "listening" : this.#state] ?? "");
  }

  #fail(error: unknown): void {
    this.#microphone = undefined;
    this.#show("failed");
    const text = error instanceof Error ? error.message : String(error);
    this.#view.showStatus(this.#texts.states.failed ?? `${text.charAt(0).toUpperCase()}${text.slice(1)}.`);
    this.#dispatch("tutti-error", { error });
  }

  #dispatch(name: string, detail: unknown): void {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }

  get #server(): URL {
    const server = this.getAttribute("server") ?? globalThis.location.origin;
    try {
      return new URL(server, globalThis.location.href);
    } catch (error) {
      throw new UsageError("bad_url", `server: expected the address of a server, got ${JSON.stringify(server)}`, error);
    }
  }

  get #speakerOptions() {
    const { apiKey } = this;
    const spoken = this.getAttribute("spoken");
    const { language, show } = this.#options;
    const translation = language === undefined || show === "original" ? {} : { translate: [language] };
    return {
      server: this.#server,
      apiKey: typeof apiKey === "function" ? apiKey : () => apiKey,
      start: {
        ...(spoken === null ? {} : { language: spoken }),
        ...(this.hasAttribute("speakers") ? { speakers: this.#mostSpeakers } : {}),
        ...translation,
        ...this.startOptions,
      },
      workletUrl: this.getAttribute("worklet") ?? undefined,
      fromS: this.#clockS,
    };
  }

  /** `speakers` without a number leaves the number to the server. */
  get #mostSpeakers(): { readonly max?: number } {
    const max = this.getAttribute("speakers") === "" ? undefined : this.#positive("speakers", true);
    return max === undefined ? {} : { max };
  }

  get #options(): ViewOptions {
    return {
      rows: this.#positive("lines", true),
      sizePx: this.#positive("size"),
      clearAfterS: this.#positive("clear-after"),
      language: this.getAttribute("language") || undefined,
      show: this.#shown,
      labels: this.getAttribute("labels")?.split(",").map((label) => label.trim()) ?? [],
      hasTimes: this.hasAttribute("times"),
      latest: this.#texts.latest,
      gap: this.#texts.gap,
    };
  }

  get #shown(): Show {
    const value = this.getAttribute("show") ?? "both";
    if (value !== "both" && value !== "original" && value !== "translation") {
      this.#warn("show", "original, translation or both", value);
      return "both";
    }
    return value;
  }

  /** An attribute that is a positive number; undefined if it is not there, or is something else. */
  #positive(name: string, isWhole = false): number | undefined {
    const value = this.getAttribute(name);
    if (value === null) {
      return undefined;
    }
    const number = Number(value);
    if (number > 0 && (isWhole ? Number.isInteger(number) : Number.isFinite(number))) {
      return number;
    }
    this.#warn(name, isWhole ? "a positive whole number" : "a positive number", value);
    return undefined;
  }

  /** Says once that a value is wrong, though it is read again and again. */
  #warn(name: string, expected: string, got: string): void {
    const warning = `<tutti-captions>: ${name}: expected ${expected}, got ${JSON.stringify(got)}`;
    if (!this.#warned.has(warning)) {
      this.#warned.add(warning);
      console.warn(warning);
    }
  }
}
