import { Backoff } from "../backoff.js";
import { parseJson } from "../events.js";
import { PROBE_TIMEOUT_MS } from "../server.js";
import { within } from "../signal.js";
import { checkEvent } from "./events.js";
const HISTORY_MS = 1_000;
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
    #news = [
        ["online", () => this.#connect()],
        [
            "offline",
            () => {
                this.#listener.onState("reconnecting");
                this.#connect();
            },
        ],
        ["pagehide", () => this.#source?.close()],
        ["pageshow", (event) => event.persisted && this.#connect()],
    ];
    constructor(server, room, listener) {
        const path = server.pathname.endsWith("/") ? server.pathname : `${server.pathname}/`;
        this.#url = new URL(`${path}captions/${encodeURIComponent(room)}/events`, server);
        this.#url.protocol = server.protocol.replace("ws", "http");
        this.#listener = listener;
        this.#news.forEach(([type, act]) => globalThis.addEventListener(type, act));
        listener.onState("connecting");
        this.#connect();
    }
    close() {
        this.#isClosed = true;
        clearTimeout(this.#timer);
        this.#source?.close();
        this.#news.forEach(([type, act]) => globalThis.removeEventListener(type, act));
    }
    #connect() {
        clearTimeout(this.#timer);
        this.#source?.close();
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
            this.#lastId = message.lastEventId || this.#lastId;
            this.#onMessage(message.data);
        };
        source.onerror = () => {
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
    async #retry() {
        const refused = this.#source;
        const wait = this.#backoff.next(performance.now());
        const isThere = await this.#isRoomThere();
        if (!this.#isClosed && wait !== undefined && refused === this.#source) {
            this.#listener.onState(isThere ? "reconnecting" : "waiting");
            clearTimeout(this.#timer);
            this.#timer = setTimeout(() => this.#connect(), wait.waitMs);
        }
    }
    #isRoomThere() {
        const answer = within(fetch(this.#url, { method: "HEAD" }), undefined, PROBE_TIMEOUT_MS);
        return answer.then(({ status }) => status !== 404, () => true);
    }
}
