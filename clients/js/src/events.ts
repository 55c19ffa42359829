/**
 * The messages of `tutti.v1`, with the names of the wire. Only `parseEvent` checks what the server sends.
 * All times are seconds on the timeline of the session: from its first sample, or in a resumed session from the first
 * sample of the lost one.
 */

import { ProtocolError } from "./errors.js";

// What the client sends.

/** How samples become bytes: 16-bit integers or 32-bit floats, both little-endian, or 8 bits of G.711. */
export type Encoding = "pcm_s16le" | "pcm_f32le" | "mulaw" | "alaw";

/** The fields of `start`. For a field that is left out, the server has a default. */
export interface StartOptions {
  readonly audio?: {
    readonly encoding?: Encoding;
    readonly sample_rate?: number;
    readonly channels?: number;
  };
  /**
   * A code such as "en"; null: the server detects the language and follows its changes; "lock": it detects the language
   * at the beginning, and keeps it.
   */
  readonly language?: string | null;
  /** The codes of the languages that are possible, where the server detects the language. */
  readonly languages?: readonly string[];
  readonly task?: "transcribe" | "translate";
  readonly interim?: boolean;
  readonly words?: boolean;
  /** Whether to send `turn` events. */
  readonly turns?: boolean;
  /** Whether interims have the times of their stable words, too. Needs `words` and `interim`. */
  readonly interim_words?: boolean;
  readonly endpointing?: {
    /**
     * "vad": speech is detected. "adaptive": as "vad", but what was spoken decides how long the silence must be.
     * "manual": an utterance begins with the first audio, and ends with `flush`, `stop` or at its maximum length.
     * The default is "adaptive" where that was measured for the server's model, and "vad" elsewhere. It is always "vad"
     * with one of the four options below.
     */
    readonly mode?: "vad" | "adaptive" | "manual";
    /**
     * The silence that ends an utterance; with "adaptive", one as sure as `end_confidence`, or of unknown text. Without
     * `mode`, it means "vad".
     */
    readonly silence_ms?: number;
    /** With "adaptive": the silence that ends an utterance that is certainly complete. */
    readonly min_silence_ms?: number;
    /** With "adaptive": the silence that ends any utterance. */
    readonly max_silence_ms?: number;
    /** With "adaptive": how sure the server must be that the speaker has finished to end a turn early, 0 to 1. */
    readonly end_confidence?: number;
    /** With `turns`: how sure the server must be that the speaker has finished to send an "eager_end", 0 to 1. */
    readonly eager_confidence?: number;
    readonly min_utterance_s?: number;
    readonly max_utterance_s?: number;
    /** Milliseconds of audio before detected speech that belong to the utterance, 0 to 1000. */
    readonly padding_ms?: number;
    /** How sure the server must be that a sound is speech, 0 to 1. A higher value takes less noise for speech. */
    readonly threshold?: number;
  };
  /** Text that the speech may follow on from, or names that it may contain. */
  readonly prompt?: string;
  /** Names and terms to expect, as they are written. */
  readonly hotwords?: readonly string[];
  /** Where to continue after a lost connection. */
  readonly resume?: {
    /** The session's `resumeFromS`: one time for all channels, or one for each. */
    readonly from_s: number | readonly number[];
    readonly prompt?: string;
    /** The time of the first sample that is sent, if it is earlier. No text is made of the audio before `from_s`. */
    readonly audio_from_s?: number;
    /**
     * The `detector_from_s` of the session's last `utterance`. With it, and with the audio from the earliest of these
     * times on, the server finds the speech that the lost session would have found.
     */
    readonly detector_from_s?: readonly (number | null)[];
    /** The `language` of the last `utterance` of each channel, so that the server goes on with it. */
    readonly language?: string | null | readonly (string | null)[];
  } | null;
  /** Whether the client goes on in another session if the server ends this one. A session that resumes sets it. */
  readonly resumes?: boolean;
}

/** Identifies a flush; the event `flushed` has the same. */
export type FlushId = string | number;

/** A message of the client. Audio is sent as binary messages. */
export type Command =
  | ({ readonly type: "start" } & StartOptions)
  | { readonly type: "flush"; readonly id: FlushId }
  | { readonly type: "keepalive" }
  | { readonly type: "stop" };

// What the server sends.

/** A code for programs and a message for people. */
export interface Notice {
  readonly code: string;
  readonly message: string;
}

/** The limits of the server for this session. */
export interface Limits {
  /** The largest message that the server accepts. */
  readonly max_message_bytes: number;
  /** The server ends the session when more audio than this has come before its time. */
  readonly max_ahead_s: number;
  /** The server ends the session when it receives nothing for this time. */
  readonly idle_timeout_s: number;
  /** The longest audio that the model decodes at once. */
  readonly max_window_s: number;
}

/** The session is open. The first event. */
export interface StartedEvent {
  readonly type: "started";
  readonly session_id: string;
  readonly model: string;
  readonly limits: Limits;
  readonly warnings: readonly Notice[];
  /** Where others read this session, if `start` asked for a room. */
  readonly room?: Room;
}

/** Where others read a session. */
export interface Room {
  readonly name: string;
  /** The path of the page for readers. */
  readonly path: string;
  /** Proves that the room is the client's, when it connects again. */
  readonly token: string;
}

/** An utterance has begun. */
export interface SpeechStartedEvent {
  readonly type: "speech_started";
  readonly utterance: number;
  readonly channel: number;
  readonly at_s: number;
}

/**
 * The text of an open utterance after the segments sent so far. `stable` will not change, `tail` may. Each interim
 * replaces the one before it.
 */
export interface InterimEvent {
  readonly type: "interim";
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  readonly stable: string;
  readonly tail: string;
  /**
   * The words of `stable`, if `interim_words` was set and there are any. Their times and confidences do not change any
   * more, and those of the segment are the same. Only the text of the last word may grow, by punctuation.
   */
  readonly stable_words?: readonly Word[];
}

/** A word of a segment or of an interim, with its times. */
export interface Word {
  readonly word: string;
  readonly start_s: number;
  readonly end_s: number;
  readonly confidence: number;
}

/** Final text between two timestamps, with its own leading space. */
export interface SegmentEvent {
  readonly type: "segment";
  readonly utterance: number;
  readonly id: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  readonly text: string;
  readonly words: readonly Word[];
  readonly confidence: number;
  readonly language: string | null;
  /** The probability of the language in this audio, from 0 to 1, if the server detected it. */
  readonly language_probability?: number;
}

/** An utterance has ended, and all of its text is final. */
export interface UtteranceEvent {
  readonly type: "utterance";
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  readonly text: string;
  /** Parts of the audio, `[start_s, end_s]`, where speech was detected but there is no text. */
  readonly uncovered: readonly (readonly [number, number])[];
  /** Audio before this time is final on all channels. The client need not keep it any longer. */
  readonly final_until_s: number;
  /** The same for each channel: the value for `resume.from_s` after a lost connection. */
  readonly resume_from_s: readonly number[];
  /**
   * The value for `resume.detector_from_s`: for each channel, from when on the server's speech detector must process the
   * audio to find the same speech; null where that is not possible. Empty if the server is too old to say.
   */
  readonly detector_from_s: readonly (number | null)[];
  /** The code of the language of most of its text, if the server chose it. */
  readonly language?: string;
  /** The probability of that language, from 0 to 1, if the server detected it for this utterance. */
  readonly language_probability?: number;
}

/**
 * News about the end of a turn, which is an utterance. Only sent to clients that set `turns`. After an "eager_end" comes
 * "resumed", or the `utterance` with the same text.
 */
export interface TurnEvent {
  readonly type: "turn";
  /** The turn has probably ended, goes on after all, or has ended. */
  readonly event: "eager_end" | "resumed" | "end";
  readonly utterance: number;
  readonly channel: number;
  /** Where the speech ended ("eager_end"), up to where it was processed ("resumed"), or where the turn ended ("end"). */
  readonly at_s: number;
  /** How sure the server is that the speaker has finished, from 0 to 1; null if it does not know. */
  readonly confidence: number | null;
  /** All text of the utterance so far, of an "eager_end"; null of the others. */
  readonly text: string | null;
}

/** A translation of text that is final. The texts of one utterance and language are joined as they are. */
export interface TranslationEvent {
  readonly type: "translation";
  readonly utterance: number;
  readonly channel: number;
  readonly language: string;
  readonly start_s: number;
  readonly end_s: number;
  readonly text: string;
}

/** Everything that was sent before the flush with this id is final. */
export interface FlushedEvent {
  readonly type: "flushed";
  readonly id: FlushId;
}

/** The server is late: speech of `behind_s` seconds ago has no text yet. */
export interface LagEvent {
  readonly type: "lag";
  readonly behind_s: number;
}

/** Something that the client should know, such as an option without effect. */
export interface WarningEvent extends Notice {
  readonly type: "warning";
}

/** An error. A fatal one has ended the session. */
export interface ErrorEvent extends Notice {
  readonly type: "error";
  readonly fatal: boolean;
}

/** The session has ended as it should. The last event. */
export interface StoppedEvent {
  readonly type: "stopped";
  readonly audio_s: number;
  readonly speech_s: number;
  readonly words: number;
}

/** An event of a server that is newer than this client. */
export interface UnknownEvent {
  readonly type: "unknown";
  /** Its `type` on the wire. */
  readonly name: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A message of the server. */
export type ServerEvent =
  | StartedEvent
  | SpeechStartedEvent
  | InterimEvent
  | SegmentEvent
  | UtteranceEvent
  | TurnEvent
  | TranslationEvent
  | FlushedEvent
  | LagEvent
  | WarningEvent
  | ErrorEvent
  | StoppedEvent
  | UnknownEvent;

/** The connection is lost, and the session tries to resume. The client makes this event, before each attempt. */
export interface ReconnectingEvent {
  readonly type: "reconnecting";
  /** The number of the attempt, from 1. */
  readonly attempt: number;
  /** Why the last connection, or the last attempt, ended; for people. */
  readonly reason: string;
  readonly retry_in_s: number;
}

/** The session goes on with another connection. The client makes this event. */
export interface ResumedEvent {
  readonly type: "resumed";
  /** Audio, `[from_s, until_s]`, that is lost because more of it came than is kept; null if all of it is sent again. */
  readonly gap: readonly [number, number] | null;
}

/** What the loop over a session delivers. */
export type SessionEvent = ServerEvent | ReconnectingEvent | ResumedEvent;

/**
 * Checks a parsed JSON value and returns it as an event. Unknown fields are left out.
 *
 * @throws ProtocolError if a field is missing or wrong; it has the field, the expected type and the value.
 */
export function parseEvent(value: unknown): ServerEvent {
  if (!isRecord(value)) {
    throw new ProtocolError("event", "an object", value);
  }
  const name = value["type"];
  if (typeof name !== "string") {
    throw new ProtocolError("type", "a string", name);
  }
  const event = new Fields(name, value);
  switch (name) {
    case "started":
      return {
        type: name,
        session_id: event.text("session_id"),
        model: event.text("model"),
        limits: limits(event.object("limits")),
        warnings: event.list("warnings", (field, item) => notice(Fields.of(field, item))),
        ...(event.has("room") ? { room: room(event.object("room")) } : {}),
      };
    case "speech_started":
      return { type: name, ...place(event), at_s: event.number("at_s") };
    case "interim":
      return {
        type: name,
        ...place(event),
        ...span(event),
        stable: event.text("stable"),
        tail: event.text("tail"),
        ...(event.has("stable_words") ? { stable_words: event.list("stable_words", parseWord) } : {}),
      };
    case "segment":
      return {
        type: name,
        ...place(event),
        id: event.count("id"),
        ...span(event),
        text: event.text("text"),
        words: event.list("words", parseWord),
        confidence: event.number("confidence"),
        language: event.textOrNull("language"),
        ...event.optional("language_probability", (name) => event.number(name)),
      };
    case "utterance":
      return {
        type: name,
        ...place(event),
        ...span(event),
        text: event.text("text"),
        uncovered: event.list("uncovered", parseSpan),
        final_until_s: event.number("final_until_s"),
        resume_from_s: event.list("resume_from_s", parseNumber),
        detector_from_s: event.optionalList("detector_from_s", parseNumberOrNull),
        ...event.optional("language", (name) => event.text(name)),
        ...event.optional("language_probability", (name) => event.number(name)),
      };
    case "turn":
      return {
        type: name,
        event: event.oneOf("event", TURN_KINDS),
        ...place(event),
        at_s: event.number("at_s"),
        confidence: event.numberOrNull("confidence"),
        text: event.textOrNull("text"),
      };
    case "translation":
      return { type: name, ...place(event), ...span(event), language: event.text("language"), text: event.text("text") };
    case "flushed":
      return { type: name, id: event.flushId("id") };
    case "lag":
      return { type: name, behind_s: event.number("behind_s") };
    case "warning":
      return { type: name, ...notice(event) };
    case "error":
      return { type: name, ...notice(event), fatal: event.boolean("fatal") };
    case "stopped":
      return {
        type: name,
        audio_s: event.number("audio_s"),
        speech_s: event.number("speech_s"),
        words: event.count("words"),
      };
    default:
      return { type: "unknown", name, fields: value };
  }
}

/** Parses a text message. */
export function parseJson(data: unknown): unknown {
  if (typeof data !== "string") {
    throw new ProtocolError("message", "a text frame", typeof data);
  }
  try {
    return JSON.parse(data);
  } catch (error) {
    throw new ProtocolError("message", "JSON", data, error);
  }
}

const TURN_KINDS = ["eager_end", "resumed", "end"] as const;

const place = (event: Fields) => ({ utterance: event.count("utterance"), channel: event.count("channel") });

const span = (event: Fields) => ({ start_s: event.number("start_s"), end_s: event.number("end_s") });

const notice = (event: Fields): Notice => ({ code: event.text("code"), message: event.text("message") });

const word = (event: Fields): Word => ({
  word: event.text("word"),
  ...span(event),
  confidence: event.number("confidence"),
});

const parseWord = (field: string, item: unknown): Word => word(Fields.of(field, item));

const room = (event: Fields): Room => ({
  name: event.text("name"),
  path: event.text("path"),
  token: event.text("token"),
});
const limits = (event: Fields): Limits => ({
  max_message_bytes: event.count("max_message_bytes"),
  max_ahead_s: event.number("max_ahead_s"),
  idle_timeout_s: event.number("idle_timeout_s"),
  max_window_s: event.number("max_window_s"),
});

function parseSpan(field: string, item: unknown): readonly [number, number] {
  if (Array.isArray(item) && item.length === 2) {
    const [start, end]: unknown[] = item;
    if (isFiniteNumber(start) && isFiniteNumber(end)) {
      return [start, end];
    }
  }
  throw new ProtocolError(field, "[start_s, end_s]", item);
}

function parseNumberOrNull(field: string, item: unknown): number | null {
  return item === null ? null : parseNumber(field, item);
}

function parseNumber(field: string, item: unknown): number {
  if (isFiniteNumber(item)) {
    return item;
  }
  throw new ProtocolError(field, "a number", item);
}

/** Reads the fields of one object and checks their types. `path` is its place in the message, for errors. */
class Fields {
  readonly #path: string;
  readonly #record: Record<string, unknown>;

  constructor(path: string, record: Record<string, unknown>) {
    this.#path = path;
    this.#record = record;
  }

  static of(path: string, value: unknown): Fields {
    if (!isRecord(value)) {
      throw new ProtocolError(path, "an object", value);
    }
    return new Fields(path, value);
  }

  has(name: string): boolean {
    return this.#record[name] !== undefined;
  }

  /** A field that may be left out, as an object with this field or none. */
  optional<Name extends string, Value>(name: Name, read: (name: Name) => Value): { [Key in Name]?: Value } {
    return this.has(name) ? ({ [name]: read(name) } as { [Key in Name]?: Value }) : {};
  }

  text(name: string): string {
    return this.#checked(name, "a string", (value) => typeof value === "string");
  }

  textOrNull(name: string): string | null {
    const isTextOrNull = (value: unknown) => value === null || typeof value === "string";
    return this.#checked(name, "a string or null", isTextOrNull);
  }

  oneOf<T extends string>(name: string, texts: readonly T[]): T {
    const isOneOf = (value: unknown): value is T => texts.some((text) => text === value);
    return this.#checked(name, `one of ${texts.join(", ")}`, isOneOf);
  }

  boolean(name: string): boolean {
    return this.#checked(name, "true or false", (value) => typeof value === "boolean");
  }

  number(name: string): number {
    return this.#checked(name, "a number", isFiniteNumber);
  }

  numberOrNull(name: string): number | null {
    const isNumberOrNull = (value: unknown): value is number | null => value === null || isFiniteNumber(value);
    return this.#checked(name, "a number or null", isNumberOrNull);
  }

  count(name: string): number {
    return this.#checked(name, "an integer from 0", isCount);
  }

  flushId(name: string): FlushId {
    const isFlushId = (value: unknown) => typeof value === "string" || Number.isSafeInteger(value);
    return this.#checked(name, "a string or an integer", isFlushId as (value: unknown) => value is FlushId);
  }

  object(name: string): Fields {
    return Fields.of(`${this.#path}.${name}`, this.#record[name]);
  }

  list<T>(name: string, parse: (field: string, item: unknown) => T): readonly T[] {
    const items: readonly unknown[] = this.#checked(name, "a list", Array.isArray);
    return items.map((item, index) => parse(`${this.#path}.${name}[${index}]`, item));
  }

  /** As `list`; empty if the field is not there. */
  optionalList<T>(name: string, parse: (field: string, item: unknown) => T): readonly T[] {
    return this.#record[name] === undefined ? [] : this.list(name, parse);
  }

  #checked<T>(name: string, expected: string, isExpected: (value: unknown) => value is T): T {
    const value = this.#record[name];
    if (!isExpected(value)) {
      throw new ProtocolError(`${this.#path}.${name}`, expected, value);
    }
    return value;
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isFiniteNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
