import { bytesOf, checkEncoding, formatOf } from "./audio.js";
import { Backoff } from "./backoff.js";
import { LONGEST_MS, nowMs } from "./clock.js";
import { CLOSE_ABNORMAL, Connection } from "./connection.js";
import { Continuity } from "./continuity.js";
import { AbortedError, ConnectError, ConnectionLost, SessionError, TuttiError, UsageError } from "./errors.js";
import { checkOptions, CONNECT_TIMEOUT_MS, HIGH_WATER_BYTES, MAX_BUFFERED_BYTES, RESUME_BUFFER_S, RESUME_TIMEOUT_MS, STOP_TIMEOUT_MS, } from "./options.js";
import { Outgoing } from "./outgoing.js";
import { PageEvents } from "./page_events.js";
import { Queue } from "./queue.js";
import { errorOf, inItsRoom, isIdle, mayResume, resumeAt } from "./resuming.js";
import { Sender } from "./sending.js";
import { askForKey, serverOf } from "./server.js";
import { throwIfAborted } from "./signal.js";
import { Writers } from "./writers.js";
const STABLE_MS = 10_000;
const SILENCE_SHARE = 0.9;
const MAX_UNREAD_EVENTS = 4096;
export async function connect(url, options = {}) {
    const server = serverOf(url, options);
    checkOptions(options);
    const { signal, start = {} } = options;
    const parts = needsParts(start) ? await loadParts(start) : {};
    throwIfAborted(signal);
    const session = new Session(server, options, parts);
    await session.opened;
    return session;
}
function needsParts({ translate, turns, words }) {
    return Boolean(translate || turns || words);
}
async function loadParts({ translate = [], turns, words }) {
    const { EagerEnds, PendingTranslations, UtteranceWords } = await import("./optional.js").catch((error) => {
        throw new ConnectError("connect_failed", "cannot load optional.js of this package", undefined, error);
    });
    return {
        ...(translate.length > 0 ? { translations: new PendingTranslations(translate) } : {}),
        ...(turns ? { eagerEnds: new EagerEnds() } : {}),
        ...(words ? { makeWords: () => new UtteranceWords() } : {}),
    };
}
export class Session {
    #server;
    #options;
    #start;
    #outgoing;
    #sender;
    #continuity;
    #events = new Queue(() => this.close());
    #backoff;
    #state = "connecting";
    #connection;
    #isStopSent = false;
    #started;
    #startedAtMs = Infinity;
    #idleError;
    #error;
    #nextFlushId = 0;
    #opening;
    #writers = new Writers(() => this.bufferedAmount < (this.#options.highWaterBytes ?? HIGH_WATER_BYTES));
    #retryNow;
    #timer;
    #onAbort = () => this.end(new AbortedError(this.#options.signal?.reason));
    #pageEvents = new PageEvents(() => this.#retryNow?.());
    constructor(server, options, parts) {
        this.#server = server;
        this.#options = options;
        this.#start = { ...options.start, ...(options.resumeBufferS === 0 ? {} : { resumes: true }) };
        const { resume } = this.#start;
        const fromS = [resume?.from_s ?? 0].flat();
        const audioFromS = resume?.audio_from_s ?? Math.min(...fromS);
        this.#continuity = new Continuity(fromS, audioFromS, parts, this.#start.channel_names);
        this.#outgoing = new Outgoing(formatOf(this.#start), options.resumeBufferS ?? RESUME_BUFFER_S, audioFromS);
        this.#sender = new Sender(this.#outgoing);
        this.#backoff = new Backoff(options.resumeTimeoutMs ?? RESUME_TIMEOUT_MS);
        this.opened = new Promise((resolve, reject) => {
            this.#opening = { resolve, reject };
        });
        options.signal?.addEventListener("abort", this.#onAbort);
        void this.#connect(this.#start);
    }
    get id() {
        return this.started.session_id;
    }
    get model() {
        return this.started.model;
    }
    get limits() {
        return this.started.limits;
    }
    get started() {
        if (this.#started === undefined) {
            throw new UsageError("not_open", "the session has not started");
        }
        return this.#started;
    }
    get finalUntilS() {
        return this.#continuity.finalUntilS;
    }
    get resumeFromS() {
        return this.#continuity.resumeFromS;
    }
    get bufferedAmount() {
        return this.#outgoing.unsentBytes + (this.#connection?.bufferedAmount ?? 0);
    }
    get isOpen() {
        return this.#state === "open";
    }
    send(audio) {
        this.#mustBeOpen("send audio");
        checkEncoding(audio, this.#start.audio?.encoding);
        this.push(audio);
    }
    push(audio) {
        const maxBytes = this.#options.maxBufferedBytes ?? MAX_BUFFERED_BYTES;
        if (this.#connection?.isOpen && this.bufferedAmount >= maxBytes) {
            const message = `${this.bufferedAmount} bytes are unsent; await writable() first`;
            throw new UsageError("send_buffer_full", message);
        }
        this.#outgoing.push(bytesOf(audio));
        this.#sendWaiting();
    }
    writable() {
        if (this.#state === "ended") {
            return Promise.reject(this.#error ?? new UsageError("not_open", "the session has ended"));
        }
        return this.#writers.wait();
    }
    flush(id) {
        this.#mustBeOpen("flush");
        const sent = id === undefined ? this.#nextFlushId++ : id;
        this.#outgoing.flush(sent);
        this.#sendWaiting();
        return sent;
    }
    keepalive() {
        this.#mustBeOpen("send keepalive");
        if (this.#connection?.isOpen) {
            this.#connection.send({ type: "keepalive" });
        }
    }
    stop() {
        if (this.#state !== "open") {
            return;
        }
        this.#state = "flushing";
        const stop = () => {
            this.#state = this.#state === "flushing" ? "stopping" : this.#state;
            this.#sendWaiting();
        };
        if (this.recording === undefined) {
            stop();
        }
        else {
            this.recording.finish(stop);
        }
    }
    reconnect() {
        if (this.#connection !== undefined && this.#state !== "connecting") {
            this.#connection.close();
            this.#onConnectionEnd({ kind: "closed", code: CLOSE_ABNORMAL, reason: "the application has given it up" });
        }
        this.#retryNow?.();
    }
    close() {
        this.end(undefined);
    }
    [Symbol.asyncIterator]() {
        return this.#events.read();
    }
    async #connect(start, replay) {
        const { apiKey } = this.#options;
        let socket;
        try {
            const key = typeof apiKey === "function" ? await askForKey(apiKey, this.#options) : apiKey;
            if (this.#state === "ended") {
                return;
            }
            socket = this.#server.openSocket(key);
        }
        catch (error) {
            this.#onConnectionEnd(error instanceof TuttiError
                ? { kind: "invalid", error }
                : { kind: "closed", code: CLOSE_ABNORMAL, reason: "it cannot be opened", cause: error });
            return;
        }
        this.#connection = new Connection(socket, {
            start,
            timeoutMs: this.#options.timeoutMs ?? CONNECT_TIMEOUT_MS,
            probe: this.#server.probe,
            onStarted: (event) => this.#onStarted(event, replay),
            onEvent: (event) => this.#onEvent(event),
            onEnd: (end) => this.#onConnectionEnd(end),
        });
    }
    #onStarted(event, replay) {
        this.#started = event;
        this.#startedAtMs = nowMs();
        if (replay === undefined) {
            this.#state = "open";
            this.#opening?.resolve();
        }
        else {
            this.#sender.resume(event.limits, this.#start.endpointing?.max_utterance_s);
            const { audioFromS, lostUntilS } = replay;
            this.deliver({ type: "resumed", gap: lostUntilS === undefined ? null : [this.finalUntilS, lostUntilS] });
            this.#continuity.resume(audioFromS, lostUntilS).forEach((each) => this.deliver(each));
            this.#sendWaiting();
        }
    }
    #onEvent(event) {
        if (this.#isStopSent) {
            this.#awaitEnd();
        }
        if (event.type === "flushed") {
            const wasWaiting = this.#outgoing.isWaitingForAnswers;
            this.#outgoing.answered(event.id);
            if (wasWaiting) {
                this.#sendWaiting();
            }
        }
        const { finalUntilS } = this.#continuity;
        this.#continuity.receive(event).forEach((each) => this.deliver(each));
        if (this.#continuity.finalUntilS > finalUntilS || event.type === "translation") {
            const { detectorFromS, translations } = this.#continuity;
            this.#outgoing.forget(this.#continuity.finalUntilS, detectorFromS, translations?.neededFromS);
            this.#backoff.reset();
        }
        if (event.type === "stopped") {
            this.end(this.recording?.error);
        }
    }
    deliver(event) {
        if (this.#events.nUnread >= MAX_UNREAD_EVENTS) {
            this.end(new SessionError("slow_reader", `${MAX_UNREAD_EVENTS} events have not been read`, this.finalUntilS));
        }
        else if (this.#state !== "ended") {
            this.#events.push(event);
        }
    }
    #sendWaiting() {
        if (this.#idleError !== undefined) {
            const error = this.#idleError;
            this.#idleError = undefined;
            this.#retry(error);
            return;
        }
        const connection = this.#connection;
        if (!connection?.isOpen) {
            return;
        }
        const waitMs = this.#sender.send(connection, this.limits);
        if (waitMs === Infinity) {
            return;
        }
        clearTimeout(this.#timer);
        if (waitMs !== undefined) {
            this.#timer = setTimeout(() => this.#sendWaiting(), waitMs);
        }
        else if (this.#state === "stopping") {
            this.#isStopSent = true;
            connection.send({ type: "stop" });
            this.#awaitEnd();
        }
    }
    #awaitEnd() {
        clearTimeout(this.#timer);
        const timeoutMs = this.#options.stopTimeoutMs ?? STOP_TIMEOUT_MS;
        this.#timer = setTimeout(() => {
            const message = `nothing came for ${timeoutMs} ms after stop`;
            this.end(new ConnectionLost("stop_timeout", message, CLOSE_ABNORMAL, this.finalUntilS));
        }, Math.min(timeoutMs, LONGEST_MS));
    }
    #onConnectionEnd(end) {
        const isFirst = this.#state === "connecting";
        const error = errorOf(end, isFirst ? this.#server.url : undefined, this.finalUntilS);
        const silentMs = this.#connection?.silentMs ?? 0;
        const hasNothingToSend = this.#state === "open" && this.#outgoing.isAnswered;
        this.#connection = undefined;
        clearTimeout(this.#timer);
        if (isFirst || this.#options.resumeBufferS === 0 || !mayResume(end)) {
            this.end(error);
            return;
        }
        this.#isStopSent = false;
        this.#sender.detach();
        if (nowMs() - this.#startedAtMs >= STABLE_MS) {
            this.#backoff.reset();
        }
        this.#startedAtMs = Infinity;
        if (isIdle(end) && hasNothingToSend && silentMs >= SILENCE_SHARE * 1000 * this.limits.idle_timeout_s) {
            this.#idleError = error;
        }
        else {
            this.#retry(error);
        }
    }
    #retry(error) {
        const next = this.#backoff.next(nowMs());
        if (next === undefined) {
            this.end(error);
            return;
        }
        this.deliver({
            type: "reconnecting",
            attempt: next.attempt,
            reason: error.message,
            retry_in_s: Math.round(next.waitMs) / 1000,
        });
        if (this.#state !== "ended") {
            const tryNow = () => {
                clearTimeout(this.#timer);
                const { waitMs } = this.#pageEvents;
                if (waitMs > 0) {
                    this.#timer = setTimeout(tryNow, waitMs);
                }
                else {
                    this.#retryNow = undefined;
                    void this.#reconnect(next.attempt > 1);
                }
            };
            this.#retryNow = tryNow;
            this.#timer = setTimeout(tryNow, next.waitMs);
        }
    }
    async #reconnect(mayBeRefused) {
        const hasSameKey = typeof this.#options.apiKey !== "function";
        if (mayBeRefused && hasSameKey && [401, 403].includes((await this.#server.probe()) ?? 0)) {
            this.end(new ConnectError("unauthorized", "the server does not accept the API key any more"));
        }
        const replay = this.#outgoing.rewind(this.finalUntilS);
        const start = inItsRoom(this.#start, this.#started);
        void this.#connect({ ...start, resume: resumeAt(this.#continuity, replay.audioFromS) }, replay);
    }
    end(error) {
        if (this.#state === "ended") {
            return;
        }
        this.#state = "ended";
        this.#error = error;
        clearTimeout(this.#timer);
        this.#options.signal?.removeEventListener("abort", this.#onAbort);
        this.#pageEvents.end();
        this.#retryNow = undefined;
        this.recording?.stop();
        this.#connection?.close();
        const closed = error ?? new UsageError("not_open", "the session has ended");
        this.#opening?.reject(closed);
        this.#writers.end(closed);
        this.#events.end(error);
    }
    #mustBeOpen(what) {
        if (this.#state !== "open") {
            const isStopped = this.#state === "flushing" || this.#state === "stopping";
            const state = isStopped ? "stopped" : this.#state;
            throw new UsageError("not_open", `the session cannot ${what}: it is ${state}`, this.#error);
        }
    }
}
