import { boolean, flushId, integer, list, number, object, oneOf } from "./fields.js";
import { optional, orNull, stretch, text } from "./fields.js";
const count = integer(0);
const readWord = object({
    word: text, start_s: number, end_s: number, confidence: number, speaker: optional(text),
});
export const EVENTS = {
    started: object({
        session_id: text, model: text, limits: object({ max_message_bytes: integer(1), max_ahead_s: number,
            idle_timeout_s: number, max_window_s: number }), warnings: list(object({ code: text,
            message: text })), room: optional(object({ name: text, path: text, token: text })),
    }),
    speech_started: object({ utterance: count, channel: count, at_s: number }),
    interim: object({
        utterance: count, channel: count, start_s: number, end_s: number, stable: text, tail: text,
        stable_words: optional(list(readWord)), speaker: optional(text),
    }),
    segment: object({
        utterance: count, id: count, channel: count, start_s: number, end_s: number, text: text, words: list(readWord),
        confidence: number, language: orNull(text), language_probability: optional(number),
        redactions: optional(list(object({ kind: text, start_s: number, end_s: number }))),
        speaker: optional(text),
    }),
    utterance: object({
        utterance: count, channel: count, start_s: number, end_s: number, text: text, uncovered: list(stretch),
        final_until_s: number, resume_from_s: list(number), detector_from_s: optional(list(orNull(number)), []),
        language: optional(text), language_probability: optional(number), translated_until_s: optional(list(number)),
        voices: optional(text), speaker: optional(text),
    }),
    translation: object({
        utterance: count, channel: count, language: text, start_s: number, end_s: number, text: text,
        translated_until_s: list(number), earlier: optional(boolean),
    }),
    turn: object({
        event: oneOf("eager_end", "resumed", "end"), utterance: count, channel: count, at_s: number,
        confidence: orNull(number), text: orNull(text),
    }),
    speakers: object({
        channel: count, spans: list(object({ from_s: number, until_s: number, speaker: text })),
    }),
    flushed: object({ id: flushId }),
    lag: object({ behind_s: number }),
    warning: object({ code: text, message: text }),
    error: object({ code: text, message: text, fatal: boolean }),
    stopped: object({ audio_s: number, speech_s: number, words: count }),
};
