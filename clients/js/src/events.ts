/** The events of a session: those of the server, which `parseEvent` checks, and those that the client makes. */

import type { AudioState } from "./audio_source.js";
import { ProtocolError } from "./errors.js";
import { record, text } from "./fields.js";
import { EVENTS, type KnownEvent, type ReconnectingEvent, type ResumedEvent, type WarningEvent } from "./messages.js";

export { isRecord } from "./fields.js";
export type * from "./messages.js";

/** A code for programs and a message for people. */
export type Notice = Omit<WarningEvent, "type">;

/** An event of a server that is newer than this client. */
export interface UnknownEvent {
  readonly type: "unknown";
  /** Its `type` on the wire. */
  readonly name: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A message of the server. */
export type ServerEvent = KnownEvent | UnknownEvent;

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
  if (!Object.hasOwn(EVENTS, type)) {
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
