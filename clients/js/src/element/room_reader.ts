/**
 * Reads the captions of a room as server-sent events, and connects again for as long as it takes. Then comes what the
 * reader has missed. If the server does not know what that is, everything comes again.
 */

import { Backoff } from "../backoff.js";
import { parseJson } from "../events.js";
import { PROBE_TIMEOUT_MS } from "../server.js";
import { within } from "../signal.js";
import { type CaptionEvent, checkEvent } from "./events.js";

/**
 * What a reader of a room waits for:
 *
 * - `connecting`: the first answer of the server.
 * - `waiting`: the speaker.
 * - `live`: nothing; the speaker is there.
 * - `reconnecting`: another connection.
 * - `ended`: nothing; the speaker has finished.
 */
export type RoomState = "connecting" | "waiting" | "live" | "reconnecting" | "ended";

/** Events that come within this time of the opening of a connection that resumes none are taken for history. */
const HISTORY_MS = 1_000;

/** What a reader reports. */
export interface RoomListener {
  /** `isHistory`: it was probably said before. */
  onEvent(event: CaptionEvent, isHistory: boolean): void;
  onState(state: RoomState): void;
  /** The server sent something that is not an event. The reader goes on. */
  onError(error: unknown): void;
}

/** The connection of a reader to a room. */
export class RoomReader {
  readonly #url: URL;
  readonly #listener: RoomListener;
  readonly #backoff = new Backoff(Infinity);
  #source: EventSource | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #openedMs = -Infinity;
  #lastId = "";
  #isResumed = false;
  #isClosed = false;
  /** What happens to the page, and what the reader does then. */
  readonly #news: readonly (readonly [name: string, act: (event: Event) => void])[] = [
    ["online", () => this.#connect()],
    [
      "offline",
      () => {
        // The connection may stay open for minutes without anything coming through it. A server on the same device is
        // still there.
        this.#listener.onState("reconnecting");
        this.#connect();
      },
    ],
    // A browser may keep a page that the user has left, with its connection, and open only a few to each server.
    ["pagehide", () => this.#source?.close()],
    ["pageshow", (event) => (event as PageTransitionEvent).persisted && this.#connect()],
  ];

  constructor(server: URL, room: string, listener: RoomListener) {
    const path = server.pathname.endsWith("/") ? server.pathname : `${server.pathname}/`;
    this.#url = new URL(`${path}captions/${encodeURIComponent(room)}/events`, server);
    // The address of a server is often that of its WebSockets.
    this.#url.protocol = server.protocol.replace("ws", "http");
    this.#listener = listener;
    this.#news.forEach(([type, act]) => globalThis.addEventListener(type, act));
    listener.onState("connecting");
    this.#connect();
  }

  /** Ends the connection. Nothing is reported after it. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#news.forEach(([type, act]) => globalThis.removeEventListener(type, act));
  }

  #connect(): void {
    clearTimeout(this.#timer);
    this.#source?.close();
    // A browser sends the id of the last event only with its own attempts.
    const url = new URL(this.#url);
    if (this.#lastId !== "") {
      url.searchParams.set("after", this.#lastId);
    }
    const source = new EventSource(url);
    this.#source = source;
    source.onopen = () => {
      this.#openedMs = performance.now();
    };
    source.onmessage = (message: MessageEvent<unknown>) => {
      // The first event of a connection has none.
      this.#lastId = message.lastEventId || this.#lastId;
      this.#onMessage(message.data);
    };
    source.onerror = () => {
      // The browser connects again by itself after a lost connection, and gives up after a refusal.
      if (source.readyState === EventSource.CLOSED) {
        void this.#retry();
      } else {
        this.#listener.onState("reconnecting");
      }
    };
  }

  #onMessage(data: unknown): void {
    try {
      const event = checkEvent(parseJson(data));
      this.#backoff.reset();
      if (event.type === "room") {
        this.#isResumed = event.resumed === true;
        this.#listener.onState(event.live ? "live" : "waiting");
      } else if (event.type === "ended") {
        this.close();
        this.#listener.onState("ended");
      }
      this.#listener.onEvent(event, !this.#isResumed && performance.now() - this.#openedMs < HISTORY_MS);
    } catch (error) {
      this.#listener.onError(error);
    }
  }

  /** Plans the next attempt. A room that does not exist yet is one whose speaker has not come. */
  async #retry(): Promise<void> {
    const refused = this.#source;
    const wait = this.#backoff.next(performance.now());
    const isThere = await this.#isRoomThere();
    // Meanwhile the page may have come back, and have connected at once.
    if (!this.#isClosed && wait !== undefined && refused === this.#source) {
      this.#listener.onState(isThere ? "reconnecting" : "waiting");
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#connect(), wait.waitMs);
    }
  }

  /** Whether the server knows the room, or cannot be asked: an event source does not tell why it was refused. */
  #isRoomThere(): Promise<boolean> {
    const answer = within(fetch(this.#url, { method: "HEAD" }), undefined, PROBE_TIMEOUT_MS);
    return answer.then(({ status }) => status !== 404, () => true);
  }
}
