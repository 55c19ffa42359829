/**
 * One streaming session: opens the socket, sends commands and audio, and delivers events through `for await`.
 * `captions.ts` turns the events into text to show.
 */

import { bytesOf, checkEncoding, formatOf } from "./audio.js";
import { Backoff } from "./backoff.js";
import { LONGEST_MS, nowMs } from "./clock.js";
import { CLOSE_ABNORMAL, CLOSE_GIVEN_UP, Connection, type End } from "./connection.js";
import { Continuity, type Parts } from "./continuity.js";
import { AbortedError, ConnectError, ConnectionLost, SessionError, TuttiError, UsageError } from "./errors.js";
import type { FlushId, Limits, ServerEvent, SessionEvent, StartedEvent, StartOptions } from "./events.js";
import {
  checkOptions,
  CONNECT_TIMEOUT_MS,
  type ConnectOptions,
  HIGH_WATER_BYTES,
  MAX_BUFFERED_BYTES,
  RESUME_BUFFER_S,
  RESUME_TIMEOUT_MS,
  STOP_TIMEOUT_MS,
} from "./options.js";
import { Outgoing } from "./outgoing.js";
import { PageEvents } from "./page_events.js";
import { Queue } from "./queue.js";
import { errorOf, inItsRoom, isIdle, mayResume, resumeAt } from "./resuming.js";
import { Sender } from "./sending.js";
import { type Address, askForKey, type Server, serverOf } from "./server.js";
import { throwIfAborted } from "./signal.js";
import type { Socket } from "./socket.js";
import { Writers } from "./writers.js";

/** The loss of a connection that was open for so long is a new outage, with a time limit of its own, in milliseconds. */
const STABLE_MS = 10_000;
/** A session that has sent something within this share of `limits.idle_timeout_s` is not silent: its network lost it. */
const SILENCE_SHARE = 0.9;
/** The events of several minutes: only an application that has stopped reading reaches this limit. */
const MAX_UNREAD_EVENTS = 4096;

/**
 * Opens a session. Resolves when the server has answered with `started`.
 *
 * @param url `ws:`, `wss:`, `http:` or `https:`; an empty path becomes `/v1/stream`.
 * @throws UsageError, ConnectError, SessionError (the server sent a fatal error), ProtocolError, AbortedError. The
 *   socket is closed then, and no listener or timer is left.
 */
export async function connect(url: Address, options: ConnectOptions = {}): Promise<Session> {
  const server = serverOf(url, options);
  checkOptions(options);
  const { signal, start = {} } = options;
  const parts = start.translate || start.turns || start.words ? await loadParts(start) : {};
  // A signal that has fired, perhaps while the parts were loaded, tells its listeners nothing more.
  throwIfAborted(signal);
  const session = new Session(server, options, parts);
  await session.opened;
  return session;
}

async function loadParts(start: StartOptions): Promise<Parts> {
  const { partsFor } = await import("./optional.js").catch((error: unknown) => {
    throw new ConnectError("connect_failed", "cannot load optional.js", undefined, error);
  });
  return partsFor(start);
}

/** While it flushes, a session waits for the last audio of its source. */
type State = "connecting" | "open" | "flushing" | "stopping" | "ended";

/** What a connection gets of the audio of the one before. */
type Replay = ReturnType<Outgoing["rewind"]>;

/** What a session needs of its source. `record` makes it. */
interface Source {
  /** The error of a source that could not go on. */
  readonly error: TuttiError | undefined;
  /** Delivers the last audio, and then calls back. */
  finish(onDone: () => void): void;
  stop(): void;
}

/** One open session. `connect` makes it. */
export class Session implements AsyncIterable<SessionEvent> {
  /** @internal Resolves when `started` has come, and rejects when it will not come. */
  readonly opened: Promise<void>;
  /** @internal */
  recording: Source | undefined;

  readonly #server: Server;
  readonly #options: ConnectOptions;
  readonly #start: StartOptions;
  readonly #outgoing: Outgoing;
  readonly #sender: Sender;
  readonly #continuity: Continuity;
  readonly #events = new Queue<SessionEvent>(() => this.close());
  readonly #backoff: Backoff;

  #state: State = "connecting";
  /** The present connection, also while it opens; undefined during a wait, and after the end. */
  #connection: Connection | undefined;
  #isStopSent = false;
  #started: StartedEvent | undefined;
  /** When this connection got `started`; Infinity before. */
  #startedAtMs = Infinity;
  /** The session has no connection until there is something to send. */
  #idleError: TuttiError | undefined;
  /** The error that ended the session; undefined while it runs, and after it has ended as it should. */
  #error: TuttiError | undefined;
  #nextFlushId = 0;

  #opening: { readonly resolve: () => void; readonly reject: (error: TuttiError) => void } | undefined;
  readonly #writers = new Writers(() => this.bufferedAmount < (this.#options.highWaterBytes ?? HIGH_WATER_BYTES));
  /** Ends the wait for the next attempt to connect, if there is one. */
  #retryNow: (() => void) | undefined;
  /** The timer of the next attempt to connect, of the next audio to send again, or of `stopTimeoutMs`. */
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #onAbort = () => this.end(new AbortedError(this.#options.signal?.reason));
  readonly #pageEvents = new PageEvents(() => this.#retryNow?.());

  /** @internal Use `connect`. */
  constructor(server: Server, options: ConnectOptions, parts: Parts) {
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

  /** The server's id of the session: of its newest connection. */
  get id(): string {
    return this.started.session_id;
  }

  /** The name of the model. */
  get model(): string {
    return this.started.model;
  }

  /** The limits of the server for this session. */
  get limits(): Limits {
    return this.started.limits;
  }

  /** The server's answer to `start`, with its warnings. The loop does not deliver it. */
  get started(): StartedEvent {
    if (this.#started === undefined) {
      throw new UsageError("not_open", "the session has not started");
    }
    return this.#started;
  }

  /** Audio before this time, in seconds, is final. */
  get finalUntilS(): number {
    return this.#continuity.finalUntilS;
  }

  /** The same for each channel: the value for `resume.from_s` of another session that continues this one. */
  get resumeFromS(): readonly number[] {
    return this.#continuity.resumeFromS;
  }

  /** The number of bytes that were given to `send` and are not sent yet. */
  get bufferedAmount(): number {
    return this.#outgoing.unsentBytes + (this.#connection?.bufferedAmount ?? 0);
  }

  /** Whether audio may be sent. It may also while the session reconnects. */
  get isOpen(): boolean {
    return this.#state === "open";
  }

  /**
   * Sends audio in the encoding of `start`, cut at any byte. A sender that is faster than real time awaits `writable()`
   * between two calls. Without a connection, the audio is kept and sent when there is one.
   *
   * @throws UsageError `not_open` before `started` and after the end, `send_buffer_full`, or `bad_audio` if a
   *   Float32Array or Int16Array is not what `start` announced.
   */
  send(audio: ArrayBuffer | ArrayBufferView): void {
    this.#mustBeOpen("send audio");
    checkEncoding(audio, this.#start.audio?.encoding);
    this.push(audio);
  }

  /** @internal As `send`, without its checks. */
  push(audio: ArrayBuffer | ArrayBufferView): void {
    const maxBytes = this.#options.maxBufferedBytes ?? MAX_BUFFERED_BYTES;
    // Without a connection, the oldest audio gives way instead, and `resumed` reports it.
    if (this.#connection?.isOpen && this.bufferedAmount >= maxBytes) {
      const message = `${this.bufferedAmount} bytes are unsent; await writable() first`;
      throw new UsageError("send_buffer_full", message);
    }
    this.#outgoing.push(bytesOf(audio));
    this.#sendWaiting();
  }

  /** Resolves when `bufferedAmount` is below `highWaterBytes`; rejects if the session ends first. */
  writable(): Promise<void> {
    if (this.#state === "ended") {
      return Promise.reject(this.#error ?? new UsageError("not_open", "the session has ended"));
    }
    return this.#writers.wait();
  }

  /** Ends open utterances now. Returns the id of the event `flushed`, which comes when all earlier audio is final. */
  flush(id?: FlushId): FlushId {
    this.#mustBeOpen("flush");
    const sent = id === undefined ? this.#nextFlushId++ : id;
    this.#outgoing.flush(sent);
    this.#sendWaiting();
    return sent;
  }

  /** Keeps the session open while there is no audio to send. */
  keepalive(): void {
    this.#mustBeOpen("send keepalive");
    if (this.#connection?.isOpen) {
      this.#connection.send({ type: "keepalive" });
    }
  }

  /**
   * Tells the server that no more audio follows. The loop continues until everything is final, and ends after
   * `stopped`. A second call has no effect.
   */
  stop(): void {
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
    } else {
      this.recording.finish(stop);
    }
  }

  /**
   * Connects again at once, where an application knows that the network has changed: gives up the present connection, or
   * the wait for the next attempt. In browsers, a session by itself tries again when the browser says that it is online.
   */
  reconnect(): void {
    if (this.#connection !== undefined && this.#state !== "connecting") {
      this.#connection.close(CLOSE_GIVEN_UP);
      this.#onConnectionEnd({ kind: "closed", code: CLOSE_ABNORMAL, reason: "the application has given it up" });
    }
    this.#retryNow?.();
  }

  /** Ends the session at once. Text that is not final yet is lost. Leaving the loop does this too. */
  close(): void {
    this.end(undefined);
  }

  /**
   * The events after `started`, up to and including `stopped`. Leaving the loop closes the session.
   *
   * @throws SessionError after a fatal error, ConnectionLost, ProtocolError, AbortedError: each of them after the
   *   events before it.
   */
  [Symbol.asyncIterator](): AsyncGenerator<SessionEvent, void, undefined> {
    return this.#events.read();
  }

  /** @param replay what this connection gets of the audio of the one before, if there was one. */
  async #connect(start: StartOptions, replay?: Replay): Promise<void> {
    const { apiKey } = this.#options;
    let socket: Socket;
    try {
      const key = typeof apiKey === "function" ? await askForKey(apiKey, this.#options) : apiKey;
      if (this.#state === "ended") {
        return;
      }
      socket = this.#server.openSocket(key);
    } catch (error) {
      this.#onConnectionEnd(
        error instanceof TuttiError
          ? { kind: "invalid", error }
          : { kind: "closed", code: CLOSE_ABNORMAL, reason: "it cannot be opened", cause: error },
      );
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

  #onStarted(event: StartedEvent, replay: Replay | undefined): void {
    this.#started = event;
    this.#startedAtMs = nowMs();
    if (replay === undefined) {
      this.#state = "open";
      this.#opening?.resolve();
    } else {
      this.#sender.resume(event.limits, this.#start.endpointing?.max_utterance_s);
      const { audioFromS, lostUntilS } = replay;
      this.deliver({ type: "resumed", gap: lostUntilS === undefined ? null : [this.finalUntilS, lostUntilS] });
      this.#continuity.resume(audioFromS, lostUntilS).forEach((each) => this.deliver(each));
      this.#sendWaiting();
    }
  }

  #onEvent(event: ServerEvent): void {
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

  /** @internal */
  deliver(event: SessionEvent): void {
    if (this.#events.nUnread >= MAX_UNREAD_EVENTS) {
      this.end(new SessionError("slow_reader", `${MAX_UNREAD_EVENTS} events have not been read`, this.finalUntilS));
    } else if (this.#state !== "ended") {
      this.#events.push(event);
    }
  }

  /** Sends what may be sent now: audio and flushes in their order, then `stop`. */
  #sendWaiting(): void {
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
    } else if (this.#state === "stopping") {
      this.#isStopSent = true;
      connection.send({ type: "stop" });
      this.#awaitEnd();
    }
  }

  /** Ends the session when the server sends nothing more for too long. */
  #awaitEnd(): void {
    clearTimeout(this.#timer);
    const timeoutMs = this.#options.stopTimeoutMs ?? STOP_TIMEOUT_MS;
    this.#timer = setTimeout(() => {
      const message = `no answer within ${timeoutMs} ms after stop`;
      this.end(new ConnectionLost("stop_timeout", message, CLOSE_ABNORMAL, this.finalUntilS));
    }, Math.min(timeoutMs, LONGEST_MS));
  }

  #onConnectionEnd(end: End): void {
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
    } else {
      this.#retry(error);
    }
  }

  /** Plans the next attempt to connect. */
  #retry(error: TuttiError): void {
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
        } else {
          this.#retryNow = undefined;
          void this.#reconnect(next.attempt > 1);
        }
      };
      this.#retryNow = tryNow;
      this.#timer = setTimeout(tryNow, next.waitMs);
    }
  }

  /**
   * @param mayBeRefused an attempt has failed, and a WebSocket does not tell whether because of the key. A function gives
   *   another one.
   */
  async #reconnect(mayBeRefused: boolean): Promise<void> {
    const hasSameKey = typeof this.#options.apiKey !== "function";
    if (mayBeRefused && hasSameKey && [401, 403].includes((await this.#server.probe()) ?? 0)) {
      this.end(new ConnectError("unauthorized", "the server does not accept the API key any more"));
    }
    const replay = this.#outgoing.rewind(this.finalUntilS);
    const start = inItsRoom(this.#start, this.#started);
    void this.#connect({ ...start, resume: resumeAt(this.#continuity, replay.audioFromS) }, replay);
  }

  /** @internal The only way to end: removes listeners and timers, closes the connection, and wakes every caller that waits. */
  end(error: TuttiError | undefined): void {
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

  #mustBeOpen(what: string): void {
    if (this.#state !== "open") {
      const isStopped = this.#state === "flushing" || this.#state === "stopping";
      const state = isStopped ? "stopped" : this.#state;
      throw new UsageError("not_open", `the session cannot ${what}: it is ${state}`, this.#error);
    }
  }
}
