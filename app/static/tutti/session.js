/**
 * One streaming session: opens the socket, sends commands and audio, and delivers events through `for await`.
 * `captions.ts` turns the events into text to show.
 */
import { Backoff } from "./backoff.js";
import { CLOSE_ABNORMAL, Connection } from "./connection.js";
import { Continuity } from "./continuity.js";
import { AbortedError, ConnectError, ConnectionLost, SessionError, UsageError } from "./errors.js";
import { EventQueue, MAX_UNREAD_EVENTS } from "./event_queue.js";
import { inItsRoom } from "./events.js";
import { Outgoing } from "./outgoing.js";
import { Pace } from "./pace.js";
const SUBPROTOCOL = "tutti.v1";
const KEY_SUBPROTOCOL_PREFIX = "tutti.key.";
const STREAM_PATH = "/v1/stream";
/** Default of `timeoutMs`. */
const CONNECT_TIMEOUT_MS = 10_000;
/** Default of `stopTimeoutMs`. */
const STOP_TIMEOUT_MS = 30_000;
/** About 5 s of 48 kHz 16-bit mono. A connection that is so late does not recover in time for captions. */
const HIGH_WATER_BYTES = 512 * 1024;
/** About 90 s of 48 kHz 16-bit mono. */
const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;
/** A WebSocket has no event for an empty buffer, so `writable` checks it, but only while a caller waits. */
const WRITABLE_CHECK_MS = 20;
/** Default of `resumeBufferS`: an utterance of the usual longest length, and minutes without a server. */
const RESUME_BUFFER_S = 300;
/** The least `resumeBufferS` but 0: less could not hold an utterance of the usual longest length. */
const MIN_RESUME_BUFFER_S = 60;
/** Default of `resumeTimeoutMs`. */
const RESUME_TIMEOUT_MS = 300_000;
/** The server lets a resumed session run further ahead: by its longest utterance, and by this (docs/protocol.md). */
const REPLAY_ALLOWANCE_S = 30;
/** The server's default of `endpointing.max_utterance_s`. */
const MAX_UTTERANCE_S = 60;
/** Audio that may not be sent again at once is sent in pieces of at least this length. */
const REPLAY_STEP_S = 1;
/** Times of the server are rounded, and differ by no more than this from the exact ones, in seconds. */
const ROUNDING_S = 1e-6;
/** The loss of a connection that was open for so long is a new outage, with a time limit of its own, in milliseconds. */
const STABLE_MS = 10_000;
/** Close codes after which a session can go on: the server or the network failed, not the client. */
const RESUMABLE_CLOSE_CODES = [1001, 1005, 1006, 1011, 1012, 1013, 1014];
/** Errors of the server that come before such a close. */
const RESUMABLE_ERRORS = ["engine_failed", "engine_stalled", "draining", "overloaded"];
/**
 * The server's error after a long time without a message. Everything is final then, and the session goes on when there is
 * something to send: browsers freeze pages that are hidden, which cannot send `keepalive` then.
 */
const IDLE = "idle";
const BYTES_PER_SAMPLE = { pcm_s16le: 2, pcm_f32le: 4, mulaw: 1, alaw: 1 };
/**
 * Opens a session. Resolves when the server has answered with `started`.
 *
 * @param url `ws:`, `wss:`, `http:` or `https:`; an empty path becomes `/v1/stream`.
 * @throws UsageError, ConnectError, SessionError (the server sent a fatal error), ProtocolError, AbortedError. The
 *   socket is closed then, and no listener or timer is left.
 */
export async function connect(url, options = {}) {
    const target = streamUrl(url);
    const protocols = subprotocols(options.apiKey);
    const { resumeBufferS = RESUME_BUFFER_S } = options;
    if (resumeBufferS !== 0 && !(resumeBufferS >= MIN_RESUME_BUFFER_S)) {
        const message = `resumeBufferS: expected ${MIN_RESUME_BUFFER_S} or more, or 0, got ${String(resumeBufferS)}`;
        throw new UsageError("bad_option", message);
    }
    if (options.signal?.aborted === true) {
        throw new AbortedError(options.signal.reason);
    }
    const server = {
        openSocket: () => (options.openSocket ?? openWebSocket)(target, protocols),
        isKeyRefused: () => isKeyRefused(target, options.apiKey),
    };
    const session = new Session(server, options);
    await session.opened;
    return session;
}
export function streamUrl(url) {
    let target;
    try {
        target = new URL(url);
    }
    catch (error) {
        throw new UsageError("bad_url", `url: expected an absolute URL, got ${JSON.stringify(String(url))}`, error);
    }
    const secure = target.protocol === "https:" || target.protocol === "wss:";
    if (!secure && target.protocol !== "http:" && target.protocol !== "ws:") {
        throw new UsageError("bad_url", `url: expected ws, wss, http or https, got ${JSON.stringify(target.protocol)}`);
    }
    // A WebSocket URL may not have a fragment, and the protocol of some URLs cannot be assigned. So we build a new one.
    const path = target.pathname === "/" || target.pathname === "" ? STREAM_PATH : target.pathname;
    return `${secure ? "wss" : "ws"}://${target.host}${path}${target.search}`;
}
/** The address of another path of the server whose address for streams is `target`, as `streamUrl` returns it. */
export function httpUrl(target, path) {
    const { protocol, host, pathname, search } = new URL(target);
    if (!pathname.endsWith(STREAM_PATH)) {
        throw new UsageError("bad_url", `url: expected no path, or one that ends in ${STREAM_PATH}, got ${pathname}`);
    }
    return `${protocol === "wss:" ? "https" : "http"}://${host}${pathname.slice(0, -STREAM_PATH.length)}${path}${search}`;
}
function subprotocols(apiKey) {
    if (apiKey === undefined) {
        return [SUBPROTOCOL];
    }
    // The characters of an HTTP token. The error message does not contain the key.
    if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(apiKey)) {
        throw new UsageError("bad_api_key", "apiKey: expected letters, digits and any of !#$%&'*+-.^_`|~");
    }
    return [SUBPROTOCOL, KEY_SUBPROTOCOL_PREFIX + apiKey];
}
function openWebSocket(url, protocols) {
    if (typeof WebSocket === "undefined") {
        throw new UsageError("no_websocket", "this environment has no WebSocket; pass one as openSocket");
    }
    return new WebSocket(url, protocols);
}
/** How long the request that finds out whether the key is refused may take. */
const PROBE_TIMEOUT_MS = 5_000;
/** Asks over HTTP whether the server refuses the key: a WebSocket does not tell why it was refused. */
async function isKeyRefused(target, apiKey) {
    const headers = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
    try {
        const url = httpUrl(target, "/v1/models");
        const { status } = await fetch(url, { headers, signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
        return status === 401 || status === 403;
    }
    catch {
        // The server cannot be reached, is another origin that allows no such request, or its address is a special one.
        return false;
    }
}
/** One open session. `connect` makes it. */
export class Session {
    /** @internal Resolves when `started` has come, and rejects when it will not come. */
    opened;
    #server;
    #options;
    #start;
    #outgoing;
    #continuity;
    #events = new EventQueue(() => this.close());
    #backoff;
    #state = "connecting";
    /** The present connection, also while it opens; undefined during a wait, and after the end. */
    #connection;
    /** How fast this connection may send audio that was recorded before; undefined when all of that is sent. */
    #pace;
    #isStopSent = false;
    /** What this connection gets of the audio of the one before. */
    #replay;
    #started;
    /** When this connection got `started`; Infinity before. */
    #startedAtMs = Infinity;
    /** The session has no connection until there is something to send. */
    #idleError;
    /** The error that ended the session; undefined while it runs, and after it has ended as it should. */
    #error;
    #nextFlushId = 0;
    #opening;
    #writers = [];
    /** The timer of the next attempt to connect, of the next audio to send again, or of `stopTimeoutMs`. */
    #timer;
    #writableCheck;
    #onAbort = () => this.#end(new AbortedError(this.#options.signal?.reason));
    /** @internal Use `connect`. */
    constructor(server, options) {
        this.#server = server;
        this.#options = options;
        this.#start = { ...options.start, ...(options.resumeBufferS === 0 ? {} : { resumes: true }) };
        const fromS = [this.#start.resume?.from_s ?? 0].flat();
        this.#continuity = new Continuity(fromS);
        this.#replay = { audioFromS: Math.min(...fromS), lostUntilS: undefined };
        this.#outgoing = new Outgoing(formatOf(this.#start), options.resumeBufferS ?? RESUME_BUFFER_S, Math.min(...fromS));
        this.#backoff = new Backoff(options.resumeTimeoutMs ?? RESUME_TIMEOUT_MS);
        this.opened = new Promise((resolve, reject) => {
            this.#opening = { resolve, reject };
        });
        options.signal?.addEventListener("abort", this.#onAbort);
        this.#connect(this.#start);
    }
    /** The server's id of the session: of its newest connection. */
    get id() {
        return this.started.session_id;
    }
    /** The name of the model. */
    get model() {
        return this.started.model;
    }
    /** The limits of the server for this session. */
    get limits() {
        return this.started.limits;
    }
    /** The server's answer to `start`, with its warnings. The loop does not deliver it. */
    get started() {
        if (this.#started === undefined) {
            throw new UsageError("not_open", "the session has not started");
        }
        return this.#started;
    }
    /** Audio before this time, in seconds, is final. */
    get finalUntilS() {
        return this.#continuity.finalUntilS;
    }
    /** The same for each channel: the value for `resume.from_s` of another session that continues this one. */
    get resumeFromS() {
        return this.#continuity.resumeFromS;
    }
    /** The number of bytes that were given to `send` and are not sent yet. */
    get bufferedAmount() {
        return this.#outgoing.unsentBytes + (this.#connection?.bufferedAmount ?? 0);
    }
    /** Whether audio may be sent. It may also while the session reconnects. */
    get isOpen() {
        return this.#state === "open";
    }
    /**
     * Sends audio in the encoding of `start`, cut at any byte. A sender that is faster than real time awaits `writable()`
     * between two calls. Without a connection, the audio is kept and sent when there is one.
     *
     * @throws UsageError `not_open` before `started` and after the end, `send_buffer_full`, or `bad_audio` if a
     *   Float32Array or Int16Array is not what `start` announced.
     */
    send(audio) {
        this.#mustBeOpen("send audio");
        this.#mustMatchEncoding(audio);
        const maxBytes = this.#options.maxBufferedBytes ?? MAX_BUFFERED_BYTES;
        // Without a connection, the oldest audio gives way instead, and `resumed` reports it.
        if (this.#connection?.isOpen === true && this.bufferedAmount >= maxBytes) {
            const message = `${this.bufferedAmount} bytes are waiting to be sent; await writable() first`;
            throw new UsageError("send_buffer_full", message);
        }
        this.#outgoing.push(bytesOf(audio));
        this.#sendWaiting();
    }
    /** Resolves when `bufferedAmount` is below `highWaterBytes`; rejects if the session ends first. */
    writable() {
        if (this.#state === "ended") {
            return Promise.reject(this.#error ?? new UsageError("not_open", "the session has ended"));
        }
        if (this.#isWritable()) {
            return Promise.resolve();
        }
        return new Promise((resolve, reject) => {
            this.#writers.push({ resolve, reject });
            this.#writableCheck ??= setInterval(() => this.#releaseWriters(), WRITABLE_CHECK_MS);
        });
    }
    /** Ends open utterances now. Returns the id of the event `flushed`, which comes when all earlier audio is final. */
    flush(id) {
        this.#mustBeOpen("flush");
        const sent = id === undefined ? this.#nextFlushId++ : id;
        this.#outgoing.flush(sent);
        this.#sendWaiting();
        return sent;
    }
    /** Keeps the session open while there is no audio to send. */
    keepalive() {
        this.#mustBeOpen("send keepalive");
        if (this.#connection?.isOpen === true) {
            this.#connection.send({ type: "keepalive" });
        }
    }
    /**
     * Tells the server that no more audio follows. The loop continues until everything is final, and ends after
     * `stopped`. A second call has no effect.
     */
    stop() {
        if (this.#state === "open") {
            this.#state = "stopping";
            this.#sendWaiting();
        }
    }
    /** Ends the session at once. Text that is not final yet is lost. Leaving the loop does this too. */
    close() {
        this.#end(undefined);
    }
    /**
     * The events after `started`, up to and including `stopped`. Leaving the loop closes the session.
     *
     * @throws SessionError after a fatal error, ConnectionLost, ProtocolError, AbortedError: each of them after the
     *   events before it.
     */
    [Symbol.asyncIterator]() {
        return this.#events.read();
    }
    #connect(start) {
        let socket;
        try {
            socket = this.#server.openSocket();
        }
        catch (error) {
            if (error instanceof UsageError) {
                this.#end(error);
            }
            else {
                this.#onConnectionEnd({ kind: "closed", code: CLOSE_ABNORMAL, reason: "it cannot be opened", cause: error });
            }
            return;
        }
        this.#connection = new Connection(socket, {
            start,
            timeoutMs: this.#options.timeoutMs ?? CONNECT_TIMEOUT_MS,
            onStarted: (event) => this.#onStarted(event),
            onEvent: (event) => this.#onEvent(event),
            onEnd: (end) => this.#onConnectionEnd(end),
        });
    }
    #onStarted(event) {
        this.#started = event;
        this.#startedAtMs = performance.now();
        if (this.#state === "connecting") {
            this.#state = "open";
            this.#opening?.resolve();
            this.#opening = undefined;
        }
        else {
            this.#onResumed(event.limits);
            this.#sendWaiting();
        }
    }
    #onResumed(limits) {
        const maxUtteranceS = this.#start.endpointing?.max_utterance_s ?? MAX_UTTERANCE_S;
        this.#pace = new Pace(limits.max_ahead_s + maxUtteranceS + REPLAY_ALLOWANCE_S, performance.now());
        const { audioFromS, lostUntilS } = this.#replay;
        this.#deliver({ type: "resumed", gap: lostUntilS === undefined ? null : [this.finalUntilS, lostUntilS] });
        this.#continuity.resume(audioFromS, lostUntilS).forEach((event) => this.#deliver(event));
    }
    #onEvent(event) {
        if (event.type === "flushed") {
            const wasWaiting = this.#outgoing.isWaitingForAnswers;
            this.#outgoing.answered(event.id);
            if (wasWaiting) {
                this.#sendWaiting();
            }
        }
        const finalUntilS = this.#continuity.finalUntilS;
        this.#continuity.receive(event).forEach((each) => this.#deliver(each));
        if (this.#continuity.finalUntilS > finalUntilS) {
            this.#outgoing.forget(this.#continuity.finalUntilS, this.#continuity.detectorFromS);
            this.#backoff.reset();
        }
        if (event.type === "stopped") {
            this.#end(undefined);
        }
    }
    #deliver(event) {
        if (this.#events.isFull) {
            this.#end(new SessionError("slow_reader", `${MAX_UNREAD_EVENTS} events have not been read`, this.finalUntilS));
        }
        else if (this.#state !== "ended") {
            this.#events.push(event);
        }
    }
    /** Sends what may be sent now: audio and flushes in their order, then `stop`. */
    #sendWaiting() {
        if (this.#idleError !== undefined) {
            const error = this.#idleError;
            this.#idleError = undefined;
            this.#retry(error);
            return;
        }
        const connection = this.#connection;
        while (connection?.isOpen === true) {
            const item = this.#outgoing.next(this.#allowedBytes());
            if (item === undefined) {
                break;
            }
            if ("audio" in item) {
                this.#pace?.add(this.#outgoing.secondsOf(item.audio.length), performance.now());
                connection.sendAudio(item.audio);
            }
            else {
                connection.send({ type: "flush", id: item.flush });
            }
        }
        if (connection?.isOpen !== true || this.#outgoing.isWaitingForAnswers) {
            return;
        }
        clearTimeout(this.#timer);
        if (this.#outgoing.unsentBytes > 0) {
            this.#timer = setTimeout(() => this.#sendWaiting(), this.#pace?.waitMs(REPLAY_STEP_S, performance.now()));
            return;
        }
        this.#pace = undefined;
        if (this.#state === "stopping") {
            this.#sendStop(connection);
        }
    }
    /** How much may be sent in one message now. Audio that was recorded before waits until some of it may be sent. */
    #allowedBytes() {
        const maxBytes = Math.max(1, this.limits.max_message_bytes);
        const allowedS = this.#pace?.allowedS(performance.now()) ?? Infinity;
        return allowedS < REPLAY_STEP_S ? 0 : Math.min(maxBytes, this.#outgoing.bytesOf(allowedS));
    }
    #sendStop(connection) {
        if (this.#isStopSent) {
            return;
        }
        this.#isStopSent = true;
        connection.send({ type: "stop" });
        const timeoutMs = this.#options.stopTimeoutMs ?? STOP_TIMEOUT_MS;
        this.#timer = setTimeout(() => {
            const message = `the server did not finish within ${timeoutMs} ms of stop`;
            this.#end(new ConnectionLost("stop_timeout", message, CLOSE_ABNORMAL, this.finalUntilS));
        }, timeoutMs);
    }
    #onConnectionEnd(end) {
        const isFirst = this.#state === "connecting";
        const error = errorOf(end, isFirst, this.finalUntilS);
        this.#connection = undefined;
        clearTimeout(this.#timer);
        if (isFirst || !this.#mayResume(end)) {
            this.#end(error);
            return;
        }
        this.#pace = undefined;
        this.#isStopSent = false;
        this.#outgoing.detach();
        if (performance.now() - this.#startedAtMs >= STABLE_MS) {
            this.#backoff.reset();
        }
        this.#startedAtMs = Infinity;
        if (end.kind === "failed" && end.event.code === IDLE) {
            this.#idleError = error;
        }
        else {
            this.#retry(error);
        }
    }
    /** Plans the next attempt to connect. */
    #retry(error) {
        const next = this.#backoff.next(performance.now());
        if (next === undefined) {
            this.#end(error);
            return;
        }
        this.#deliver({
            type: "reconnecting",
            attempt: next.attempt,
            reason: error.message,
            retry_in_s: Math.round(next.waitMs) / 1000,
        });
        if (this.#state !== "ended") {
            this.#timer = setTimeout(() => void this.#reconnect(next.attempt > 1), next.waitMs);
        }
    }
    #mayResume(end) {
        if ((this.#options.resumeBufferS ?? RESUME_BUFFER_S) === 0) {
            return false;
        }
        switch (end.kind) {
            case "closed":
                return RESUMABLE_CLOSE_CODES.includes(end.code);
            case "failed":
                return end.event.code === IDLE || RESUMABLE_ERRORS.includes(end.event.code);
            case "late":
                return true;
            case "invalid":
                return false;
        }
    }
    async #reconnect(mayBeRefused) {
        if (mayBeRefused && (await this.#server.isKeyRefused())) {
            this.#end(new ConnectError("unauthorized", "the server does not accept the API key any more"));
        }
        if (this.#state === "ended") {
            return;
        }
        const { finalUntilS, resumeFromS, detectorFromS, languages } = this.#continuity;
        this.#replay = this.#outgoing.rewind(finalUntilS);
        const { audioFromS } = this.#replay;
        const fromS = resumeFromS.map((timeS) => Math.max(timeS, audioFromS));
        const [first] = fromS;
        // Times are rounded: one that is this little before the first sample means this sample.
        const knownS = detectorFromS.map((timeS) => (timeS !== null && timeS >= audioFromS - ROUNDING_S ? timeS : null));
        const resume = {
            // A list needs a time for each channel.
            from_s: fromS.length === 1 && first !== undefined ? first : fromS,
            ...(audioFromS < Math.min(...fromS) ? { audio_from_s: audioFromS } : {}),
            ...(knownS.some((timeS) => timeS !== null) ? { detector_from_s: knownS } : {}),
            ...(languages === undefined ? {} : { language: languages }),
        };
        this.#connect({ ...inItsRoom(this.#start, this.#started), resume });
    }
    /** The only way to end: removes listeners and timers, closes the connection, and wakes every caller that waits. */
    #end(error) {
        if (this.#state === "ended") {
            return;
        }
        this.#state = "ended";
        this.#error = error;
        clearTimeout(this.#timer);
        clearInterval(this.#writableCheck);
        this.#options.signal?.removeEventListener("abort", this.#onAbort);
        this.#connection?.close();
        const closed = error ?? new UsageError("not_open", "the session was closed");
        this.#opening?.reject(closed);
        this.#opening = undefined;
        for (const writer of this.#writers.splice(0)) {
            writer.reject(closed);
        }
        this.#events.end(error);
    }
    #isWritable() {
        return this.bufferedAmount < (this.#options.highWaterBytes ?? HIGH_WATER_BYTES);
    }
    #releaseWriters() {
        if (this.#isWritable()) {
            clearInterval(this.#writableCheck);
            this.#writableCheck = undefined;
            for (const writer of this.#writers.splice(0)) {
                writer.resolve();
            }
        }
    }
    #mustBeOpen(what) {
        if (this.#state !== "open") {
            const why = this.#state === "stopping" ? "it has been stopped" : `it is ${this.#state}`;
            throw new UsageError("not_open", `the session cannot ${what}: ${why}`, this.#error);
        }
    }
    #mustMatchEncoding(audio) {
        const encoding = this.#start.audio?.encoding ?? "pcm_s16le";
        const wanted = audio instanceof Float32Array ? "pcm_f32le" : audio instanceof Int16Array ? "pcm_s16le" : undefined;
        if (wanted !== undefined && wanted !== encoding) {
            const got = audio instanceof Float32Array ? "a Float32Array" : "an Int16Array";
            throw new UsageError("bad_audio", `audio: expected ${encoding}, as start said, got ${got}`);
        }
    }
}
function errorOf(end, isFirst, finalUntilS) {
    switch (end.kind) {
        case "closed": {
            const why = `${end.code}${end.reason === "" ? "" : `: ${end.reason}`}`;
            if (isFirst) {
                const message = `the connection was closed before the session started (${why})`;
                return new ConnectError("connect_failed", message, end.code, end.cause);
            }
            const message = `the connection was closed before the session had ended (${why})`;
            return new ConnectionLost("connection_lost", message, end.code, finalUntilS, end.cause);
        }
        case "failed":
            return new SessionError(end.event.code, end.event.message, finalUntilS);
        case "late": {
            const message = `no answer from the server within ${end.timeoutMs} ms`;
            return isFirst
                ? new ConnectError("connect_timeout", message)
                : new ConnectionLost("connect_timeout", message, CLOSE_ABNORMAL, finalUntilS);
        }
        case "invalid":
            return end.error;
    }
}
function formatOf(start) {
    const { encoding = "pcm_s16le", sample_rate = 16_000, channels = 1 } = start.audio ?? {};
    return { sampleRate: sample_rate, frameBytes: BYTES_PER_SAMPLE[encoding] * channels };
}
function bytesOf(audio) {
    return ArrayBuffer.isView(audio)
        ? new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength)
        : new Uint8Array(audio);
}
