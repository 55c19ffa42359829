/** Messages of a server, golden files with more of them, and loops that collect events. */

import { readFileSync } from "node:fs";
import type { SessionEvent } from "../src/index.js";

export const STARTED = {
  type: "started",
  session_id: "s_01",
  model: "tutti-demo",
  limits: { max_message_bytes: 8, max_ahead_s: 60, idle_timeout_s: 60, max_window_s: 30 },
  warnings: [],
};
export const STOPPED = { type: "stopped", audio_s: 2, speech_s: 1, words: 1 };

const place = (utterance: number, start_s: number) => ({ utterance, channel: 0, start_s, end_s: start_s + 0.9 });
export const begun = (utterance: number, at_s: number) => ({ type: "speech_started", utterance, channel: 0, at_s }) as const;
export const interim = (utterance: number, start_s: number, stable: string, tail = "") =>
  ({ type: "interim", ...place(utterance, start_s), stable, tail }) as const;
export const segment = (utterance: number, start_s: number, text: string, language = "en") =>
  ({ type: "segment", ...place(utterance, start_s), id: 0, text, words: [], confidence: 0.9, language }) as const;
export const ended = (utterance: number, start_s: number, text: string, final_until_s = 0) => {
  const until = { uncovered: [], final_until_s, resume_from_s: [final_until_s], detector_from_s: [] };
  return { type: "utterance", ...place(utterance, start_s), text, ...until } as const;
};

/** The content of a file beside the tests of Python, such as a golden one. */
export function readShared<Content>(path: string): Content {
  return JSON.parse(readFileSync(new URL(`../../../tests/${path}`, import.meta.url), "utf8")) as Content;
}

/** All events, or the error that is thrown after them. */
export async function collect<Event>(events: AsyncIterable<Event>): Promise<Event[]> {
  const collected: Event[] = [];
  for await (const event of events) {
    collected.push(event);
  }
  return collected;
}

/** The events so far, and how the loop over them ends: with an error, or undefined. */
export function readAll(session: AsyncIterable<SessionEvent>): { events: SessionEvent[]; end: Promise<unknown> } {
  const events: SessionEvent[] = [];
  const end = (async () => {
    for await (const event of session) {
      events.push(event);
    }
  })().catch((error: unknown) => error);
  return { events, end };
}
