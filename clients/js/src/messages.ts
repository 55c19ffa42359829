/**
 * The messages of `tutti.v1`, with the names of the wire. All times are seconds on the timeline of the session: from
 * its first sample, or in a resumed session from the first sample of the lost one.
 * `python -m tests.wire_messages` writes this module from `clients/python/tutti/messages.py`.
 */

import { boolean, flushId, integer, list, number, object, oneOf } from "./fields.js";
import { optional, orNull, type Read, stretch, text } from "./fields.js";

const count = integer(0);

/** How samples become bytes: signed 16-bit or 32-bit float, both little-endian, or 8 bits of G.711. */
export type Encoding = "pcm_s16le" | "pcm_f32le" | "mulaw" | "alaw";

/** The client's own name for a flush. */
export type FlushId = string | number;

/** The format of audio: bytes of samples, in which the channels alternate. */
export interface AudioFormat {
  /** How samples become bytes. */
  readonly encoding?: Encoding;
  /** Samples per second and channel. 8000 to 48000. */
  readonly sample_rate?: number;
  /** Each channel is transcribed on its own. 1 to 8. */
  readonly channels?: number;
}

/** Final text of a lost session whose translations did not come. A session fills this in by itself. */
export interface Untranslated {
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  readonly text: string;
  /** The code of the language of the text, if the server said it. */
  readonly language?: string | null;
  /** The codes of the languages whose translation is missing. */
  readonly targets: readonly string[];
}

/** The times at which a new session continues a lost one. Send the audio from the earliest of them on. */
export interface Resume {
  /**
   * The `resume_from_s` of the lost session's last `utterance`: one time for each channel, or one for all. The server
   * transcribes the audio after it.
   */
  readonly from_s: number | readonly number[];
  /** The text before that time, as context for the model. It takes the place of `prompt` for the first utterance. */
  readonly prompt?: string;
  /**
   * The time of the first sample that is sent, if that is earlier. No text is made of the audio before `from_s`. The
   * server's speech detector adapts to it.
   */
  readonly audio_from_s?: number | null;
  /**
   * The `detector_from_s` of the lost session's last `utterance`. With the audio from the earliest of these times on,
   * the server finds the same speech; without it, perhaps later.
   */
  readonly detector_from_s?: readonly (number | null)[];
  /** The `language` of the last `utterance` of each channel, so that the server goes on with it; or one for all. */
  readonly language?: string | readonly (string | null)[] | null;
  /** Final text before `from_s` whose translations did not come. Send its audio, too, by `audio_from_s`. */
  readonly untranslated?: readonly Untranslated[];
  /** The `voices` of the lost session's last `utterance`, so that its speakers keep their letters. With `speakers`. */
  readonly voices?: string;
}

/** When an utterance begins and ends. */
export interface Endpointing {
  /**
   * What begins and ends utterances. "vad": detected speech. "adaptive": as "vad", but what was spoken decides how long
   * the silence must be. "manual": the client's audio and `flush`. The default is "adaptive" where that was measured
   * for the server's model, else "vad". It is always "vad" with one of the four options below.
   */
  readonly mode?: "vad" | "adaptive" | "manual" | null;
  /**
   * The silence that ends an utterance; with "adaptive", one as sure as `end_confidence`, or of unknown text. 100 to
   * 5000.
   */
  readonly silence_ms?: number;
  /** With "adaptive": the silence that ends an utterance that is certainly complete. 100 to 5000. */
  readonly min_silence_ms?: number;
  /** With "adaptive": the silence that ends any utterance. At least `min_silence_ms`. 100 to 5000. */
  readonly max_silence_ms?: number;
  /**
   * With "adaptive": how sure the server must be that the speaker has finished to end a turn early. A surer end comes
   * before `silence_ms`, a less sure one later. 0 to 1.
   */
  readonly end_confidence?: number;
  /** With `turns`: how sure the server must be that the speaker has finished to send an "eager_end". 0 to 1. */
  readonly eager_confidence?: number;
  /**
   * Silence does not end an utterance that is shorter than this, so that a single word waits for more speech. 0 to 10.
   */
  readonly min_utterance_s?: number;
  /** A longer utterance ends at its next window. 10 to 300. */
  readonly max_utterance_s?: number;
  /** Audio before detected speech that belongs to the utterance. 0 to 1000. */
  readonly padding_ms?: number;
  /**
   * How sure the server must be that a sound is speech. More takes less noise for speech, and more soft speech for
   * noise. Without it, the operator's. 0 to 1.
   */
  readonly threshold?: number | null;
}

/** The room in which a session is published for readers. */
export interface Room {
  /** Without a name the server makes one that cannot be guessed. */
  readonly name?: string | null;
  /** The `room.token` of an earlier `started`, whose room this session goes on in. */
  readonly token?: string | null;
  /** The title that readers see. */
  readonly title?: string;
}

/**
 * The server tells the speakers of the one channel apart. `speaker` of segments and words is a letter then, and
 * `speakers` events say who speaks when, and revise it.
 */
export interface SpeakerLimit {
  /** The most speakers. 1 to 10. */
  readonly max?: number;
}

/** What the server does with the text before it leaves. */
export interface TextRules {
  /** Write numbers in digits; English only. */
  readonly numerals?: boolean;
  /** What is not written down; "number" is any three digits. */
  readonly redact?: readonly ("card" | "ssn" | "account" | "phone" | "email" | "number")[];
  /** Words that are not written down either. */
  readonly redact_names?: readonly string[];
  /** Words, and what is written instead of them. */
  readonly replace?: Readonly<Record<string, string>>;
  /** Write asterisks instead of profane words; English only. */
  readonly profanity?: "mask" | null;
}

/** Asks for a session. The first command. For a field that is left out, the server has a default. */
export interface StartOptions {
  /** The format of the audio. */
  readonly audio?: AudioFormat;
  /** A name of the model, where the server has several; without it the first one. */
  readonly model?: string | null;
  /** A code such as "en"; null: it is detected, and its changes are followed; "lock": it is detected once. */
  readonly language?: string | null;
  /** The languages that are possible, where the server detects the language. Without any: all it knows. */
  readonly languages?: readonly string[];
  /** Whether to write the language that is spoken, or to translate it into English. */
  readonly task?: "transcribe" | "translate";
  /** The codes of the languages that final text is translated to, by `translation` events. */
  readonly translate?: readonly string[];
  /** Whether to send `interim` events. */
  readonly interim?: boolean;
  /** Whether segments have the times of their words. They then come with the end of their window. */
  readonly words?: boolean;
  /** Whether to send `turn` events. */
  readonly turns?: boolean;
  /** Whether interims have the times of their stable words, too. Needs `words` and `interim`. */
  readonly interim_words?: boolean;
  /** When an utterance begins and ends. */
  readonly endpointing?: Endpointing;
  /** Text that the speech may follow on from, or names that it may contain. */
  readonly prompt?: string;
  /** Names and terms to expect, as they are written. Each has at most 47 bytes. */
  readonly hotwords?: readonly string[];
  /**
   * The beams of final text: more make fewer mistakes and more work. Without it, what the server has chosen. There are
   * no more than the engine has slots. 1 to 10.
   */
  readonly beam_size?: number | null;
  /** Where to continue after a lost connection. */
  readonly resume?: Resume | null;
  /** Whether the client goes on in another session if the server ends this one, so that no utterance need end. */
  readonly resumes?: boolean;
  /** The room in which the session is published for readers; `{}` has a name that cannot be guessed. */
  readonly room?: Room | null;
  /** A name for each channel, all different, which then is `speaker` of its text, such as `["agent", "caller"]`. */
  readonly channel_names?: readonly string[];
  /** Tells the speakers of the one channel apart. Not with `channel_names`. */
  readonly speakers?: SpeakerLimit | null;
  /** What the server does with the text before it leaves. */
  readonly text_rules?: TextRules;
}

/** The limits of the server for this session. */
export interface Limits {
  /** The largest message that the server accepts. */
  readonly max_message_bytes: number;
  /** The server ends the session when more audio than this has come before its time, in seconds. */
  readonly max_ahead_s: number;
  /** The server ends the session when it receives nothing for this time, in seconds. */
  readonly idle_timeout_s: number;
  /** The longest audio that the model decodes at once, in seconds. */
  readonly max_window_s: number;
}

/** Something that the client should know, such as an option without effect. Also an item of `started.warnings`. */
export interface WarningEvent {
  readonly type: "warning";
  readonly code: string;
  readonly message: string;
}

/** The room of a session. */
export interface RoomAddress {
  readonly name: string;
  /** Where readers find it on the server. */
  readonly path: string;
  /** Proves that the room is the client's. It is a secret. */
  readonly token: string;
}

/** The session is open. The first event. */
export interface StartedEvent {
  readonly type: "started";
  readonly session_id: string;
  readonly model: string;
  readonly limits: Limits;
  readonly warnings: readonly (Omit<WarningEvent, "type">)[];
  /** The room in which the session is published, if `start` asked for one. */
  readonly room?: RoomAddress;
}

/** An utterance has begun. */
export interface SpeechStartedEvent {
  readonly type: "speech_started";
  /** The number of the utterance in the session. All channels share one count. */
  readonly utterance: number;
  /** The index of the channel. */
  readonly channel: number;
  readonly at_s: number;
}

/** A word of a segment or of an interim, with its times. */
export interface Word {
  readonly word: string;
  readonly start_s: number;
  readonly end_s: number;
  /** How sure the model is of the word, from 0 to 1. */
  readonly confidence: number;
  /** The letter of its speaker, if `start` has `speakers`, as far as it is known by then. */
  readonly speaker?: string;
}

/** The text of an open utterance after the segments sent so far. Each interim replaces the one before it. */
export interface InterimEvent {
  readonly type: "interim";
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  /** Text that will not change any more. */
  readonly stable: string;
  /** Text that may still change. It follows `stable`. */
  readonly tail: string;
  /**
   * The words of `stable`, if `start` has `interim_words` and there are any. Their times and confidences do not change
   * any more, and those of the segment are the same. Only the text of the last word may grow, by punctuation.
   */
  readonly stable_words?: readonly Word[];
  /** The name of its channel, if `start` has `channel_names`. */
  readonly speaker?: string;
}

/** Something that was said and is not written down. Whoever keeps the audio may mute it there. */
export interface Redaction {
  /** What it is, such as "card"; "number" where only a part of it was heard; "name" for one of `redact_names`. */
  readonly kind: string;
  readonly start_s: number;
  readonly end_s: number;
}

/** Final text. The text of an utterance is the texts of its segments, joined without a separator. */
export interface SegmentEvent {
  readonly type: "segment";
  readonly utterance: number;
  readonly id: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  /** The text of the segment, with its leading space if the script has spaces. */
  readonly text: string;
  /** The words of the segment. Empty unless `start` has `words` and the server offers word times. */
  readonly words: readonly Word[];
  /** How sure the model is of the segment, from 0 to 1. */
  readonly confidence: number;
  /** A code such as "en", or null if the server does not know it. */
  readonly language: string | null;
  /** The probability of the language in this audio, from 0 to 1. Only if the server detected it. */
  readonly language_probability?: number;
  /** What was said in it and is not written down, if `start` has `text_rules` that redact. */
  readonly redactions?: readonly Redaction[];
  /**
   * The name of its channel, if `start` has `channel_names`. Or the letter of the speaker of most of its words, if it
   * has `speakers`, as far as that is known by then: `speakers` events may revise it.
   */
  readonly speaker?: string;
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
  /** For each channel, the time before which audio is final: the value for `resume.from_s` after a lost connection. */
  readonly resume_from_s: readonly number[];
  /**
   * The value for `resume.detector_from_s`: for each channel, from when on the server's speech detector must process
   * the audio to find the same speech; null where that is not possible. Empty if the server is too old to say.
   */
  readonly detector_from_s: readonly (number | null)[];
  /** The code of the language of most of its text, if the server chose it. */
  readonly language?: string;
  /** The probability of that language, from 0 to 1. Only if the server detected it for this utterance. */
  readonly language_probability?: number;
  /** For each channel the time before which no more translations come, if `start` has `translate`. */
  readonly translated_until_s?: readonly number[];
  /** The value for `resume.voices`, if `start` has `speakers`. */
  readonly voices?: string;
  /** The name of its channel, if `start` has `channel_names`. */
  readonly speaker?: string;
}

/**
 * The translation of a piece of final text. The pieces of an utterance and a language are joined as they are. Sent for
 * each language of `translate`, after the text.
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
 * News about the end of a turn, which is an utterance. Only sent if `start` has `turns`. After an "eager_end" comes
 * "resumed", or the `utterance` with the same text.
 */
export interface TurnEvent {
  readonly type: "turn";
  readonly event: "eager_end" | "resumed" | "end";
  readonly utterance: number;
  readonly channel: number;
  /**
   * Where the speech ended ("eager_end"), up to where it was processed ("resumed"), or where the turn ended ("end").
   */
  readonly at_s: number;
  /** How sure the server is that the speaker has finished, from 0 to 1; null if it does not know. */
  readonly confidence: number | null;
  /** All text of the utterance so far, of an "eager_end"; null of the others. */
  readonly text: string | null;
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

/** Everything that was sent before the flush with this id is final. */
export interface FlushedEvent {
  readonly type: "flushed";
  readonly id: FlushId;
}

/** The server is late: speech of `behind_s` seconds ago has no text yet. Sent from 2 s on, at most once a second. */
export interface LagEvent {
  readonly type: "lag";
  readonly behind_s: number;
}

/** An error. The page about the protocol lists the codes. */
export interface ErrorEvent {
  readonly type: "error";
  readonly code: string;
  readonly message: string;
  /** Whether the error ended the session. */
  readonly fatal: boolean;
}

/** The session has ended as it should. The last event. */
export interface StoppedEvent {
  readonly type: "stopped";
  /** Seconds of audio that the server received. */
  readonly audio_s: number;
  /** Seconds of speech in it. */
  readonly speech_s: number;
  /** Number of words in the final text. */
  readonly words: number;
}

/** The connection is lost, and another one will be opened. Made by the client, not sent by the server. */
export interface ReconnectingEvent {
  readonly type: "reconnecting";
  /** The number of the attempt in this outage, from 1. */
  readonly attempt: number;
  /** Why the connection, or the attempt before, failed. */
  readonly reason: string;
  /** How long the client waits before the attempt, in seconds. */
  readonly retry_in_s: number;
}

/** The session goes on over another connection. Made by the client, not sent by the server. */
export interface ResumedEvent {
  readonly type: "resumed";
  /** Audio that was not final and is lost, `[from_s, until_s]`: the outage was longer than the client keeps audio. */
  readonly gap: readonly [number, number] | null;
}

/** A message of the client. Audio is sent as binary messages. */
export type Command = ({ readonly type: "start" } & StartOptions)
  | { readonly type: "flush"; readonly id: FlushId }
  | { readonly type: "keepalive" }
  | { readonly type: "stop" };

/** The messages of the server. */
export type KnownEvent = StartedEvent | SpeechStartedEvent | InterimEvent | SegmentEvent | UtteranceEvent |
  TranslationEvent | TurnEvent | SpeakersEvent | FlushedEvent | LagEvent | WarningEvent | ErrorEvent | StoppedEvent;

const readWord = object<Word>({
  word: text, start_s: number, end_s: number, confidence: number, speaker: optional(text),
});

/** Reads the fields of each event. */
export const EVENTS: { readonly [Event in KnownEvent as Event["type"]]: Read<Omit<Event, "type">> } = {
  started: object<Omit<StartedEvent, "type">>({
    session_id: text, model: text, limits: object<Limits>({ max_message_bytes: integer(1), max_ahead_s: number,
    idle_timeout_s: number, max_window_s: number }), warnings: list(object<Omit<WarningEvent, "type">>({ code: text,
    message: text })), room: optional(object<RoomAddress>({ name: text, path: text, token: text })),
  }),
  speech_started: object<Omit<SpeechStartedEvent, "type">>({ utterance: count, channel: count, at_s: number }),
  interim: object<Omit<InterimEvent, "type">>({
    utterance: count, channel: count, start_s: number, end_s: number, stable: text, tail: text,
    stable_words: optional(list(readWord)), speaker: optional(text),
  }),
  segment: object<Omit<SegmentEvent, "type">>({
    utterance: count, id: count, channel: count, start_s: number, end_s: number, text: text, words: list(readWord),
    confidence: number, language: orNull(text), language_probability: optional(number),
    redactions: optional(list(object<Redaction>({ kind: text, start_s: number, end_s: number }))),
    speaker: optional(text),
  }),
  utterance: object<Omit<UtteranceEvent, "type">>({
    utterance: count, channel: count, start_s: number, end_s: number, text: text, uncovered: list(stretch),
    final_until_s: number, resume_from_s: list(number), detector_from_s: optional(list(orNull(number)), []),
    language: optional(text), language_probability: optional(number), translated_until_s: optional(list(number)),
    voices: optional(text), speaker: optional(text),
  }),
  translation: object<Omit<TranslationEvent, "type">>({
    utterance: count, channel: count, language: text, start_s: number, end_s: number, text: text,
    translated_until_s: list(number), earlier: optional(boolean),
  }),
  turn: object<Omit<TurnEvent, "type">>({
    event: oneOf("eager_end", "resumed", "end"), utterance: count, channel: count, at_s: number,
    confidence: orNull(number), text: orNull(text),
  }),
  speakers: object<Omit<SpeakersEvent, "type">>({
    channel: count, spans: list(object<SpeakerSpan>({ from_s: number, until_s: number, speaker: text })),
  }),
  flushed: object<Omit<FlushedEvent, "type">>({ id: flushId }),
  lag: object<Omit<LagEvent, "type">>({ behind_s: number }),
  warning: object<Omit<WarningEvent, "type">>({ code: text, message: text }),
  error: object<Omit<ErrorEvent, "type">>({ code: text, message: text, fatal: boolean }),
  stopped: object<Omit<StoppedEvent, "type">>({ audio_s: number, speech_s: number, words: count }),
};
