/**
 * The messages of `tutti.v1`, with the names of the wire. Only `parseEvent` checks what the server sends.
 * All times are seconds on the timeline of the session: from its first sample, or in a resumed session from the first
 * sample of the lost one.
 */

import type { AudioState } from "./audio_source.js";
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
  /** The codes of the languages that final text is translated to, by `translation` events. */
  readonly translate?: readonly string[];
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
  /** A name of the model, where the server has several. `/v1/models` lists them. Default: the first one. */
  readonly model?: string;
  /** The beams of final text, 1 to 10: more make fewer mistakes and more work. Default: what the server has chosen. */
  readonly beam_size?: number;
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
    /** Final text before `from_s` whose translations did not come. A session fills this in by itself. */
    readonly untranslated?: readonly Untranslated[];
    /** The `voices` of the session's last `utterance`, so that its speakers keep their letters. */
    readonly voices?: string;
  } | null;
  /** A name for each channel, which then is `speaker` of its text, such as `["agent", "caller"]`. */
  readonly channel_names?: readonly string[];
  /**
   * Tells the speakers of the one channel apart, up to `max` of them, 1 to 10 (default: 10). `speaker` of segments and
   * words is a letter then, and `speakers` events say who speaks when, and revise it.
   */
  readonly speakers?: { readonly max?: number } | null;
  /** What the server does with the text before it leaves. */
  readonly text_rules?: {
    /** Write numbers in digits; English only. */
    readonly numerals?: boolean;
    /** What is not written down; `number` is any three digits. */
    readonly redact?: readonly ("card" | "ssn" | "account" | "phone" | "email" | "number")[];
    /** Words that are not written down either. */
    readonly redact_names?: readonly string[];
    /** Words, and what is written instead of them. */
    readonly replace?: Readonly<Record<string, string>>;
    /** Write asterisks instead of profane words; English only. */
    readonly profanity?: "mask" | null;
  };
  /** Whether the client goes on in another session if the server ends this one. A session that resumes sets it. */
  readonly resumes?: boolean;
  /** The room in which the session is published for readers; `{}` has a name that cannot be guessed. */
  readonly room?: {
    /** 3 to 64 of A-Z, a-z, 0-9, _ and -. */
    readonly name?: string;
    /** The `room.token` of an earlier `started`, whose room this session goes on in. */
    readonly token?: string;
    /** For readers, at most 200 characters. */
    readonly title?: string;
  } | null;
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
  /** The room in which the session is published, if `start` asked for one. */
  readonly room?: RoomAddress;
}

/** The room of a session. */
export interface RoomAddress {
  readonly name: string;
  /** Where readers find it on the server. */
  readonly path: string;
  /** Proves that the room is the client's. It is a secret. */
  readonly token: string;
}

/** Final text of a lost session whose translations did not come. */
export interface Untranslated {
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  readonly text: string;
  /** The code of the language of the text, if the server said it. */
  readonly language: string | null;
  /** The codes of the languages whose translation is missing. */
  readonly targets: readonly string[];
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
  /** The name of its channel, from `channel_names`. */
  readonly speaker?: string;
}

/** A word of a segment or of an interim, with its times. */
export interface Word {
  readonly word: string;
  readonly start_s: number;
  readonly end_s: number;
  readonly confidence: number;
  /** The letter of its speaker, if `start` has `speakers`, as far as it is known by then. */
  readonly speaker?: string;
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
  /**
   * The name of its channel, from `channel_names`; or the letter of the speaker of most of its words, if `start` has
   * `speakers`, as far as it is known by then: `speakers` events may revise it.
   */
  readonly speaker?: string;
  /** What was said in it and is not written down, if `start` has `text_rules` that redact. */
  readonly redactions?: readonly Redaction[];
}

/** Something that was said and is not written down. Whoever keeps the audio may mute it there. */
export interface Redaction {
  /** What it is, such as `card`; `number` where only a part of it was heard; `name` for one of `redact_names`. */
  readonly kind: string;
  readonly start_s: number;
  readonly end_s: number;
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
  /** For each channel the time before which no more translations come, if the session asked for translations. */
  readonly translated_until_s?: readonly number[];
  /** The name of its channel, from `channel_names`. */
  readonly speaker?: string;
  /** The value for `resume.voices`, if `start` has `speakers`. */
  readonly voices?: string;
}

/** One speaker speaks between two times. */
export interface SpeakerSpan {
  readonly from_s: number;
  readonly until_s: number;
  /** A letter: "A" is the speaker who was heard first. */
  readonly speaker: string;
}

/** Who speaks when, if `start` has `speakers`. It replaces what earlier events said of these times. */
export interface SpeakersEvent {
  readonly type: "speakers";
  readonly channel: number;
  /** In the order of their times; none overlaps another. */
  readonly spans: readonly SpeakerSpan[];
}

/**
 * The translation of a piece of final text, for each language of `translate`. The pieces of an utterance and a language are
 * joined as they are.
 */
export interface TranslationEvent {
  readonly type: "translation";
  readonly utterance: number;
  readonly channel: number;
  /** The code of the language of the translation. */
  readonly language: string;
  /** Where the text begins that is translated. */
  readonly start_s: number;
  readonly end_s: number;
  readonly text: string;
  /** For each channel the time before which no more translations come. */
  readonly translated_until_s: readonly number[];
  /** The utterance is one of a lost session, by the number that `resume.untranslated` gave it. */
  readonly earlier?: boolean;
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
  | TranslationEvent
  | TurnEvent
  | SpeakersEvent
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

/** Audio comes from the session's `source` again, or does not, and why. The client makes this event. */
export interface SourceEvent {
  readonly type: "source";
  readonly state: AudioState;
}

/** What the loop over a session delivers. */
export type SessionEvent = ServerEvent | ReconnectingEvent | ResumedEvent | SourceEvent;

/**
 * Checks a parsed JSON value and returns it as an event. Unknown fields are left out.
 *
 * @throws ProtocolError if a field is missing or wrong; it has the field, the expected type and the value.
 */
export function parseEvent(value: unknown): ServerEvent {
  const fields = record(value, "event");
  const type = text(fields["type"], "type");
  if (!Object.keys(EVENTS).includes(type)) {
    return { type: "unknown", name: type, fields };
  }
  return { type, ...EVENTS[type as KnownEvent["type"]](fields, type) } as ServerEvent;
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

/** Checks a value, which `field` names for errors. Undefined stands for a field that is not there. */
type Read<T> = (value: unknown, field: string) => T;

/** A reader for each field; the field is left out where its reader returns undefined. */
type Shape<T> = { readonly [Name in keyof T]-?: Read<T[Name]> };

const is =
  <T>(expected: string, isExpected: (value: unknown) => boolean): Read<T> =>
  (value, field) => {
    if (isExpected(value)) {
      return value as T;
    }
    throw new ProtocolError(field, expected, value);
  };

const record = is<Record<string, unknown>>("an object", isRecord);
const isText = (value: unknown) => typeof value === "string";
const text = is<string>("a string", isText);
const boolean = is<boolean>("true or false", (value) => typeof value === "boolean");
const number = is<number>("a number", Number.isFinite);
const count = is<number>("an integer from 0", (value) => Number.isSafeInteger(value) && (value as number) >= 0);
const flushId = is<FlushId>("a string or an integer", (value) => isText(value) || Number.isSafeInteger(value));
const stretch = is<readonly [number, number]>(
  "[start_s, end_s]",
  (value) => Array.isArray(value) && value.length === 2 && value.every(Number.isFinite),
);

const TURNS: readonly unknown[] = ["eager_end", "resumed", "end"];
const turn = is<TurnEvent["event"]>(TURNS.join(" or "), (value) => TURNS.includes(value));

const list =
  <T>(read: Read<T>): Read<readonly T[]> =>
  (value, field) =>
    is<unknown[]>("a list", Array.isArray)(value, field).map((item, index) => read(item, `${field}[${index}]`));

const orNull =
  <T>(read: Read<T>): Read<T | null> =>
  (value, field) =>
    value === null ? null : read(value, field);

/** A field that may be left out. */
const optional =
  <T>(read: Read<T>): Read<T | undefined> =>
  (value, field) =>
    value === undefined ? undefined : read(value, field);

const object =
  <T>(shape: Shape<T>): Read<T> =>
  (value, field) => {
    const given = record(value, field);
    const readers = Object.entries<Read<unknown>>(shape);
    const fields = readers.map(([name, read]) => [name, read(given[name], `${field}.${name}`)] as const);
    return Object.fromEntries(fields.filter(([, item]) => item !== undefined)) as T;
  };

const place = { utterance: count, channel: count };
const span = { start_s: number, end_s: number };
const notice = { code: text, message: text };
const speaker = optional(text);
const words = list(object<Word>({ word: text, ...span, confidence: number, speaker }));

type KnownEvent = Exclude<ServerEvent, UnknownEvent>;

/** Reads the fields of each event. */
const EVENTS: { readonly [Event in KnownEvent as Event["type"]]: Read<Omit<Event, "type">> } = {
  started: object<Omit<StartedEvent, "type">>({
    session_id: text,
    model: text,
    limits: object<Limits>({
      max_message_bytes: count,
      max_ahead_s: number,
      idle_timeout_s: number,
      max_window_s: number,
    }),
    warnings: list(object<Notice>(notice)),
    room: optional(object<RoomAddress>({ name: text, path: text, token: text })),
  }),
  speech_started: object({ ...place, at_s: number }),
  interim: object<Omit<InterimEvent, "type">>({
    ...place,
    ...span,
    stable: text,
    tail: text,
    stable_words: optional(words),
    speaker,
  }),
  segment: object<Omit<SegmentEvent, "type">>({
    ...place,
    id: count,
    ...span,
    text,
    words,
    confidence: number,
    language: orNull(text),
    language_probability: optional(number),
    speaker,
    redactions: optional(list(object<Redaction>({ kind: text, ...span }))),
  }),
  utterance: object<Omit<UtteranceEvent, "type">>({
    ...place,
    ...span,
    text,
    uncovered: list(stretch),
    final_until_s: number,
    resume_from_s: list(number),
    detector_from_s: (value = [], field) => list(orNull(number))(value, field),
    language: optional(text),
    language_probability: optional(number),
    translated_until_s: optional(list(number)),
    speaker,
    voices: optional(text),
  }),
  translation: object<Omit<TranslationEvent, "type">>({
    ...place,
    language: text,
    ...span,
    text,
    translated_until_s: list(number),
    earlier: optional(boolean),
  }),
  turn: object({
    event: turn,
    ...place,
    at_s: number,
    confidence: orNull(number),
    text: orNull(text),
  }),
  speakers: object<Omit<SpeakersEvent, "type">>({
    channel: count,
    spans: list(object<SpeakerSpan>({ from_s: number, until_s: number, speaker: text })),
  }),
  flushed: object({ id: flushId }),
  lag: object({ behind_s: number }),
  warning: object(notice),
  error: object({ ...notice, fatal: boolean }),
  stopped: object({ audio_s: number, speech_s: number, words: count }),
};

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
