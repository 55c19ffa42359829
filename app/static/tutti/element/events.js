import { ProtocolError } from "../errors.js";
import { isRecord } from "../events.js";
const PLACE = { utterance: "number", channel: "number" };
const TEXT = { ...PLACE, start_s: "number", end_s: "number", text: "string" };
const FIELDS = {
    speech_started: { ...PLACE, at_s: "number" },
    interim: { ...PLACE, start_s: "number", stable: "string", tail: "string" },
    segment: { ...TEXT, id: "number" },
    utterance: TEXT,
    translation: { ...TEXT, language: "string" },
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
