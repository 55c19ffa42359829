/** The events of a session: those of the server, which `parseEvent` checks, and those that the client makes. */
import { ProtocolError } from "./errors.js";
import { record, text } from "./fields.js";
import { EVENTS } from "./messages.js";
export { isRecord } from "./fields.js";
/**
 * Checks a parsed JSON value and returns it as an event. Unknown fields are left out.
 *
 * @throws ProtocolError if a field is missing or wrong; it has the field, the expected type and the value.
 */
export function parseEvent(value) {
    const fields = record(value, "event");
    const type = text(fields["type"], "type");
    if (!Object.hasOwn(EVENTS, type)) {
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
