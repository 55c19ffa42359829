/** The events that `<tutti-captions>` takes: those of a session, those of a room, and translations. It checks each one. */

import { ProtocolError } from "../errors.js";
import { isRecord, type SessionEvent, type TranslationEvent } from "../events.js";

/** A reader has joined a room. */
export interface RoomEvent {
  readonly type: "room";
  readonly name: string;
  /** For people; null or absent if the speaker gave none. */
  readonly title?: string | null;
  /** Whether a speaker is there. */
  readonly live: boolean;
  /** After a lost connection: true if only what the reader has missed follows; false if the whole text comes anew. */
  readonly resumed?: boolean;
}

/** The session of a room's speaker is over for good. */
export interface EndedEvent {
  readonly type: "ended";
}

/** The text of this utterance is taken away: the speaker's connection was lost, and its audio is decoded again. */
export interface RetractEvent {
  readonly type: "retract";
  readonly utterance: number;
}

/** The translation of final text. The texts of an utterance and language are joined as they are. */
export type Translation = Omit<TranslationEvent, "translated_until_s" | "earlier">;

/** What `apply` takes. */
export type CaptionEvent = SessionEvent | RoomEvent | EndedEvent | RetractEvent | Translation;

const PLACE = { utterance: "number", channel: "number" } as const;
const TEXT = { ...PLACE, start_s: "number", end_s: "number", text: "string" } as const;
/** The events that change what is shown, and the fields that are read of them. */
const FIELDS: Readonly<Record<string, Readonly<Record<string, "string" | "number" | "boolean">>>> = {
  speech_started: { ...PLACE, at_s: "number" },
  interim: { ...PLACE, start_s: "number", stable: "string", tail: "string" },
  segment: { ...TEXT, id: "number" },
  utterance: TEXT,
  translation: { ...TEXT, language: "string" },
  retract: { utterance: "number" },
  room: { name: "string", live: "boolean" },
};

/**
 * Checks the fields that are read of an event. Events of other types pass as they are: they change nothing.
 *
 * @throws ProtocolError if a field is missing or wrong.
 */
export function checkEvent(value: unknown): CaptionEvent {
  if (!isRecord(value) || typeof value["type"] !== "string") {
    throw new ProtocolError("event", "an object with a type", value);
  }
  const type = value["type"];
  for (const [name, kind] of Object.entries(FIELDS[type] ?? {})) {
    if (typeof value[name] !== kind) {
      throw new ProtocolError(`${type}.${name}`, `a ${kind}`, value[name]);
    }
  }
  return value as unknown as CaptionEvent;
}
