import { ProtocolError } from "./errors.js";
import { record, text } from "./fields.js";
import { EVENTS } from "./messages.js";
export { isRecord } from "./fields.js";
export function parseEvent(value) {
    const fields = record(value, "event");
    const type = text(fields["type"], "type");
    if (!Object.hasOwn(EVENTS, type)) {
        return { type: "unknown", name: type, fields };
    }
    return { type, ...EVENTS[type](fields, type) };
}
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
