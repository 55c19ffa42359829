import { ProtocolError } from "../errors.js";
import { isRecord } from "../events.js";
const FIELDS = {
    speech_started: { utterance: "number", channel: "number", at_s: "number" },
    interim: { utterance: "number", channel: "number", start_s: "number", stable: "string", tail: "string" },
    segment: {
        utterance: "number",
        id: "number",
        channel: "number",
        start_s: "number",
        end_s: "number",
        text: "string",
    },
    utterance: { utterance: "number", channel: "number", start_s: "number", end_s: "number", text: "string" },
    translation: {
        utterance: "number",
        channel: "number",
        language: "string",
        start_s: "number",
        end_s: "number",
        text: "string",
    },
    retract: { utterance: "number" },
    room: { name: "string", live: "boolean" },
};
export function checkEvent(value) {
    if (!isRecord(value) || typeof value["type"] !== "string") {
        throw new ProtocolError("event", "an object with a type", value);
    }
    const type = value["type"];
    for (const [name, kind] of Object.entries(FIELDS[type] ?? {})) {
        if (typeof value[name] !== kind) {
            throw new ProtocolError(`${type}.${name}`, `a ${kind}`, value[name]);
        }
    }
    return value;
}
