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
const TURN_KINDS = ["eager_end", "resumed", "end"];
const place = (event) => ({ utterance: event.count("utterance"), channel: event.count("channel") });
const span = (event) => ({ start_s: event.number("start_s"), end_s: event.number("end_s") });
const notice = (event) => ({ code: event.text("code"), message: event.text("message") });
const word = (event) => ({
    word: event.text("word"),
    ...span(event),
    confidence: event.number("confidence"),
});
const parseWord = (field, item) => word(Fields.of(field, item));
const room = (event) => ({
    name: event.text("name"),
    path: event.text("path"),
    token: event.text("token"),
});
const limits = (event) => ({
    max_message_bytes: event.count("max_message_bytes"),
    max_ahead_s: event.number("max_ahead_s"),
    idle_timeout_s: event.number("idle_timeout_s"),
    max_window_s: event.number("max_window_s"),
});
function parseSpan(field, item) {
    if (Array.isArray(item) && item.length === 2) {
        const [start, end] = item;
        if (isFiniteNumber(start) && isFiniteNumber(end)) {
            return [start, end];
        }
    }
    throw new ProtocolError(field, "[start_s, end_s]", item);
}
function parseNumberOrNull(field, item) {
    return item === null ? null : parseNumber(field, item);
}
function parseNumber(field, item) {
    if (isFiniteNumber(item)) {
        return item;
    }
    throw new ProtocolError(field, "a number", item);
}
/** Reads the fields of one object and checks their types. `path` is its place in the message, for errors. */
class Fields {
    #path;
    #record;
    constructor(path, record) {
        this.#path = path;
        this.#record = record;
    }
    static of(path, value) {
        if (!isRecord(value)) {
            throw new ProtocolError(path, "an object", value);
        }
        return new Fields(path, value);
    }
    has(name) {
        return this.#record[name] !== undefined;
    }
    /** A field that may be left out, as an object with this field or none. */
    optional(name, read) {
        return this.has(name) ? { [name]: read(name) } : {};
    }
    text(name) {
        return this.#checked(name, "a string", (value) => typeof value === "string");
    }
    textOrNull(name) {
        const isTextOrNull = (value) => value === null || typeof value === "string";
        return this.#checked(name, "a string or null", isTextOrNull);
    }
    oneOf(name, texts) {
        const isOneOf = (value) => texts.some((text) => text === value);
        return this.#checked(name, `one of ${texts.join(", ")}`, isOneOf);
    }
    boolean(name) {
        return this.#checked(name, "true or false", (value) => typeof value === "boolean");
    }
    number(name) {
        return this.#checked(name, "a number", isFiniteNumber);
    }
    numberOrNull(name) {
        const isNumberOrNull = (value) => value === null || isFiniteNumber(value);
        return this.#checked(name, "a number or null", isNumberOrNull);
    }
    count(name) {
        return this.#checked(name, "an integer from 0", isCount);
    }
    flushId(name) {
        const isFlushId = (value) => typeof value === "string" || Number.isSafeInteger(value);
        return this.#checked(name, "a string or an integer", isFlushId);
    }
    object(name) {
        return Fields.of(`${this.#path}.${name}`, this.#record[name]);
    }
    list(name, parse) {
        const items = this.#checked(name, "a list", Array.isArray);
        return items.map((item, index) => parse(`${this.#path}.${name}[${index}]`, item));
    }
    /** As `list`; empty if the field is not there. */
    optionalList(name, parse) {
        return this.#record[name] === undefined ? [] : this.list(name, parse);
    }
    #checked(name, expected, isExpected) {
        const value = this.#record[name];
        if (!isExpected(value)) {
            throw new ProtocolError(`${this.#path}.${name}`, expected, value);
        }
        return value;
    }
}
export function isRecord(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
function isFiniteNumber(value) {
    return typeof value === "number" && Number.isFinite(value);
}
function isCount(value) {
    return Number.isSafeInteger(value) && value >= 0;
}
