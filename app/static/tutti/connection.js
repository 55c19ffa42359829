import { LONGEST_MS, nowMs } from "./clock.js";
import { ProtocolError } from "./errors.js";
import { parseEvent, parseJson, } from "./events.js";
const CLOSE_DONE = 1000;
export const CLOSE_ABNORMAL = 1006;
const STALL_MS = 10_000;
const QUIET_MS = 15_000;
export const OPEN_TIMEOUT_MS = 10_000;
export class Connection {
    #socket;
    #options;
    #listeners;
    #deadline;
    #isStarted = false;
    #isEnded = false;
    #isSocketClosed = false;
    #givenBytes = 0;
    #takenBytes = 0;
    #takenAtMs = nowMs();
    #heardAtMs = nowMs();
    #isProbing = false;
    #sentAtMs = nowMs();
    constructor(socket, options) {
        this.#socket = socket;
        this.#options = options;
        const limit = (timeoutMs) => {
            this.#deadline = setTimeout(() => this.#end({ kind: "late", timeoutMs }), Math.min(timeoutMs, LONGEST_MS));
        };
        this.#listeners = [
            [
                "open",
                () => {
                    clearTimeout(this.#deadline);
                    limit(options.timeoutMs);
                    this.send({ type: "start", ...options.start });
                },
            ],
            ["message", (event) => this.#onMessage(event.data)],
            ["error", (event) => this.#end({ kind: "closed", code: CLOSE_ABNORMAL, reason: "", cause: event })],
            [
                "close",
                (event) => {
                    this.#isSocketClosed = true;
                    this.#end({ kind: "closed", code: event.code ?? CLOSE_ABNORMAL, reason: event.reason ?? "" });
                },
            ],
        ];
        this.#listeners.forEach((each) => socket.addEventListener(...each));
        limit(Math.min(options.timeoutMs, OPEN_TIMEOUT_MS));
    }
    get isOpen() {
        return this.#isStarted && !this.#isEnded;
    }
    get bufferedAmount() {
        return this.#socket.bufferedAmount ?? 0;
    }
    get silentMs() {
        return nowMs() - this.#sentAtMs;
    }
    send(message) {
        this.#sentAtMs = nowMs();
        this.#socket.send(JSON.stringify(message));
    }
    sendAudio(audio) {
        const takenBytes = this.#givenBytes - this.bufferedAmount;
        if (this.#socket.bufferedAmount === undefined) {
            void this.#checkServer();
        }
        else if (takenBytes > this.#takenBytes || this.bufferedAmount === 0) {
            this.#takenBytes = takenBytes;
            this.#takenAtMs = nowMs();
        }
        else if (nowMs() - this.#takenAtMs >= STALL_MS) {
            this.#end({ kind: "closed", code: CLOSE_ABNORMAL, reason: `the network took nothing for ${STALL_MS / 1000} s` });
            return;
        }
        this.#givenBytes += audio.length;
        this.#sentAtMs = nowMs();
        this.#socket.send(audio);
    }
    close() {
        if (this.#isEnded) {
            return;
        }
        this.#isEnded = true;
        clearTimeout(this.#deadline);
        this.#listeners.forEach((each) => this.#socket.removeEventListener(...each));
        if (!this.#isSocketClosed) {
            closeQuietly(this.#socket);
        }
    }
    #end(end) {
        if (!this.#isEnded) {
            this.close();
            this.#options.onEnd(end);
        }
    }
    async #checkServer() {
        if (this.#isProbing || nowMs() - this.#heardAtMs < QUIET_MS) {
            return;
        }
        this.#isProbing = true;
        const isGone = (await this.#options.probe()) === 0;
        this.#isProbing = false;
        if (isGone && nowMs() - this.#heardAtMs >= QUIET_MS) {
            this.#end({ kind: "closed", code: CLOSE_ABNORMAL, reason: "the server cannot be reached" });
        }
        this.#heardAtMs = nowMs();
    }
    #onMessage(data) {
        this.#heardAtMs = nowMs();
        let event;
        try {
            event = parseEvent(parseJson(data));
        }
        catch (error) {
            if (!(error instanceof ProtocolError)) {
                throw error;
            }
            this.#end({ kind: "invalid", error });
            return;
        }
        if (event.type === "error" && (event.fatal || !this.#isStarted)) {
            this.#end({ kind: "failed", event });
        }
        else if (this.#isStarted) {
            this.#options.onEvent(event);
        }
        else if (event.type === "started") {
            this.#isStarted = true;
            clearTimeout(this.#deadline);
            this.#options.onStarted(event);
        }
    }
}
function closeQuietly(socket) {
    const ignore = () => { };
    const onClose = () => {
        socket.removeEventListener("error", ignore);
        socket.removeEventListener("close", onClose);
    };
    socket.addEventListener("error", ignore);
    socket.addEventListener("close", onClose);
    socket.close(CLOSE_DONE);
}
