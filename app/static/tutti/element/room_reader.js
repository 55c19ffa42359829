/**
 * Reads the captions of a room as server-sent events, and connects again for as long as it takes. Then comes what the
 * reader has missed. If the server does not know what that is, everything comes again.
 */
import { Backoff } from "../backoff.js";
import { parseJson } from "../events.js";
import { checkEvent } from "./events.js";
/** Events that come within this time of the opening of a connection that resumes none are taken for history. */
const HISTORY_MS = 1_000;
/** How long the request that finds out why there is no stream may take. */
const PROBE_TIMEOUT_MS = 5_000;
/** The connection of a reader to a room. */
export class RoomReader {
    #url;
    #listener;
    #backoff = new Backoff(Infinity);
    #source;
    #timer;
    #openedMs = -Infinity;
    #lastId = "";
    #isResumed = false;
    #isClosed = false;
    /** What happens to the page, and what the reader does then. */
    #news = [
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
        ["pageshow", (event) => event.persisted && this.#connect()],
    ];
    constructor(server, room, listener) {
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
    close() {
        this.#isClosed = true;
        clearTimeout(this.#timer);
        this.#source?.close();
        this.#news.forEach(([type, act]) => globalThis.removeEventListener(type, act));
    }
    #connect() {
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
        source.onmessage = (message) => {
            // The first event of a connection has none.
            this.#lastId = message.lastEventId || this.#lastId;
            this.#onMessage(message.data);
        };
        source.onerror = () => {
            // The browser connects again by itself after a lost connection, and gives up after a refusal.
            if (source.readyState === EventSource.CLOSED) {
                void this.#retry();
            }
            else {
                this.#listener.onState("reconnecting");
            }
        };
    }
    #onMessage(data) {
        try {
            const event = checkEvent(parseJson(data));
            this.#backoff.reset();
            if (event.type === "room") {
                this.#isResumed = event.resumed === true;
                this.#listener.onState(event.live ? "live" : "waiting");
            }
            else if (event.type === "ended") {
                this.close();
                this.#listener.onState("ended");
            }
            this.#listener.onEvent(event, !this.#isResumed && performance.now() - this.#openedMs < HISTORY_MS);
        }
        catch (error) {
            this.#listener.onError(error);
        }
    }
    /** Plans the next attempt. A room that does not exist yet is one whose speaker has not come. */
    async #retry() {
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
    async #isRoomThere() {
        const controller = new AbortController();
        const timer = setTimeout(() => controller.abort(), PROBE_TIMEOUT_MS);
        try {
            return (await fetch(this.#url, { method: "HEAD", signal: controller.signal })).status !== 404;
        }
        catch {
            return true;
        }
        finally {
            clearTimeout(timer);
        }
    }
}
