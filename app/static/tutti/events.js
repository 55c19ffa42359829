/**
 * The messages of `tutti.v1`, with the names of the wire. Only `parseEvent` checks what the server sends.
 * All times are seconds on the timeline of the session: from its first sample, or in a resumed session from the first
 * sample of the lost one.
 */
import { ProtocolError } from "./errors.js";
/**
 * Checks a parsed JSON value and returns it as an event. Unknown fields are left out.
 *
 * @throws ProtocolError if a field is missing or wrong; it has the field, the expected type and the value.
 */
export function parseEvent(value) {
    const fields = record(value, "event");
    const type = text(fields["type"], "type");
    if (!Object.keys(EVENTS).includes(type)) {
        return { type: "unknown", name: type, fields };
    }
    return { type, ...EVENTS[type](fields, type) };
}
/** Parses a text message. */
export function parseJson(data) {
    if (typeof data !== "string") {
        throw new ProtocolError("message", "a text frame", typeof data);
    }
    try {
        return JSON.parse(data);
    }
    catch (error) {
        throw new ProtocolError("message", "JSON", data, error);
    }
}
const is = (expected, isExpected) => (value, field) => {
    if (isExpected(value)) {
        return value;
    }
    throw new ProtocolError(field, expected, value);
};
const record = is("an object", isRecord);
const isText = (value) => typeof value === "string";
const text = is("a string", isText);
const boolean = is("true or false", (value) => typeof value === "boolean");
const number = is("a number", Number.isFinite);
const count = is("an integer from 0", (value) => Number.isSafeInteger(value) && value >= 0);
const flushId = is("a string or an integer", (value) => isText(value) || Number.isSafeInteger(value));
const stretch = is("[start_s, end_s]", (value) => Array.isArray(value) && value.length === 2 && value.every(Number.isFinite));
const TURNS = ["eager_end", "resumed", "end"];
const turn = is(TURNS.join(" or "), (value) => TURNS.includes(value));
const list = (read) => (value, field) => is("a list", Array.isArray)(value, field).map((item, index) => read(item, `${field}[${index}]`));
const orNull = (read) => (value, field) => value === null ? null : read(value, field);
/** A field that may be left out. */
const optional = (read) => (value, field) => value === undefined ? undefined : read(value, field);
const object = (shape) => (value, field) => {
    const given = record(value, field);
    const readers = Object.entries(shape);
    const fields = readers.map(([name, read]) => [name, read(given[name], `${field}.${name}`)]);
    return Object.fromEntries(fields.filter(([, item]) => item !== undefined));
};
const place = { utterance: count, channel: count };
const span = { start_s: number, end_s: number };
const notice = { code: text, message: text };
const speaker = optional(text);
const words = list(object({ word: text, ...span, confidence: number, speaker }));
/** Reads the fields of each event. */
const EVENTS = {
    started: object({
        session_id: text,
        model: text,
        limits: object({
            max_message_bytes: count,
            max_ahead_s: number,
            idle_timeout_s: number,
            max_window_s: number,
        }),
        warnings: list(object(notice)),
        room: optional(object({ name: text, path: text, token: text })),
    }),
    speech_started: object({ ...place, at_s: number }),
    interim: object({
        ...place,
        ...span,
        stable: text,
        tail: text,
        stable_words: optional(words),
        speaker,
    }),
    segment: object({
        ...place,
        id: count,
        ...span,
        text,
        words,
        confidence: number,
        language: orNull(text),
        language_probability: optional(number),
        speaker,
        redactions: optional(list(object({ kind: text, ...span }))),
    }),
    utterance: object({
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
    translation: object({
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
    speakers: object({
        channel: count,
        spans: list(object({ from_s: number, until_s: number, speaker: text })),
    }),
    flushed: object({ id: flushId }),
    lag: object({ behind_s: number }),
    warning: object(notice),
    error: object({ ...notice, fatal: boolean }),
    stopped: object({ audio_s: number, speech_s: number, words: count }),
};
export function isRecord(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
