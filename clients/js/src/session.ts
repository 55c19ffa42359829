/**
 * One streaming session: opens the socket, sends commands and audio, and delivers events through `for await`.
 * `captions.ts` turns the events into text to show.
 */

import {
  AbortedError,
  ConnectError,
  ConnectionLost,
  ProtocolError,
  SessionError,
  type TuttiError,
  UsageError,
} from "./errors.js";
import {
  type Command,
  type Encoding,
  type FlushId,
  type Limits,
  parseEvent,
  parseJson,
  type ServerEvent,
  type StartedEvent,
  type StartOptions,
} from "./events.js";
import type { OpenSocket, Socket, SocketEvent, SocketEventType, SocketListener } from "./socket.js";

const SUBPROTOCOL = "tutti.v1";
const KEY_SUBPROTOCOL_PREFIX = "tutti.key.";
export const STREAM_PATH = "/v1/stream";

/** Close codes of RFC 6455, 7.4.1. */
const CLOSE_DONE = 1000;
const CLOSE_ABNORMAL = 1006;

/** Default of `timeoutMs`. */
const CONNECT_TIMEOUT_MS = 10_000;
/** Default of `stopTimeoutMs`. */
const STOP_TIMEOUT_MS = 30_000;
/** About 5 s of 48 kHz 16-bit mono. A connection that is so late does not recover in time for captions. */
const HIGH_WATER_BYTES = 512 * 1024;
/** About 90 s of 48 kHz 16-bit mono. */
const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;
/** The events of several minutes: only an application that has stopped reading reaches this limit. */
const MAX_UNREAD_EVENTS = 4096;
/** A WebSocket has no event for an empty buffer, so `writable` checks it, but only while a caller waits. */
const WRITABLE_CHECK_MS = 20;

/** The options of `connect`. */
export interface ConnectOptions {
  /** The fields of the `start` message, named as on the wire. */
  readonly start?: StartOptions | undefined;
  /** The API key. It is sent as a subprotocol, because browsers cannot set the headers of a WebSocket. */
  readonly apiKey?: string | undefined;
  /** Cancels `connect`, and later the session. */
  readonly signal?: AbortSignal | undefined;
  /** How long the server may take to answer with `started`. Default: 10 s. */
  readonly timeoutMs?: number | undefined;
  /** How long the server may take after `stop()` to make the rest final. Default: 30 s. */
  readonly stopTimeoutMs?: number | undefined;
  /** `writable()` waits until fewer bytes than this are unsent. Default: 512 KiB. */
  readonly highWaterBytes?: number | undefined;
  /** `send` throws an error while this many bytes are unsent. Default: 8 MiB. */
  readonly maxBufferedBytes?: number | undefined;
  /**
   * Opens the WebSocket. It is needed where there is no global `WebSocket`; with the package `ws` it is
   * `(url, protocols) => new WebSocket(url, protocols)`.
   */
  readonly openSocket?: OpenSocket | undefined;
}

/**
 * Opens a session. Resolves when the server has answered with `started`.
 *
 * @param url `ws:`, `wss:`, `http:` or `https:`; an empty path becomes `/v1/stream`.
 * @throws UsageError, ConnectError, SessionError (the server sent a fatal error), ProtocolError, AbortedError. The
 *   socket is closed then, and no listener or timer is left.
 */
export async function connect(url: string | URL, options: ConnectOptions = {}): Promise<Session> {
  const target = streamUrl(url);
  const protocols = subprotocols(options.apiKey);
  if (options.signal?.aborted === true) {
    throw new AbortedError(options.signal.reason);
  }
  let socket: Socket;
  try {
    socket = (options.openSocket ?? openWebSocket)(target, protocols);
  } catch (error) {
    if (error instanceof UsageError) {
      throw error;
    }
    throw new ConnectError("connect_failed", `cannot open ${target}`, undefined, error);
  }
  const session = new Session(socket, options);
  await session.opened;
  return session;
}

export function streamUrl(url: string | URL): string {
  let target: URL;
  try {
    target = new URL(url);
  } catch (error) {
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

function subprotocols(apiKey: string | undefined): string[] {
  if (apiKey === undefined) {
    return [SUBPROTOCOL];
  }
  // The characters of an HTTP token. The error message does not contain the key.
  if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(apiKey)) {
    throw new UsageError("bad_api_key", "apiKey: expected letters, digits and any of !#$%&'*+-.^_`|~");
  }
  return [SUBPROTOCOL, KEY_SUBPROTOCOL_PREFIX + apiKey];
}

function openWebSocket(url: string, protocols: string[]): Socket {
  if (typeof WebSocket === "undefined") {
    throw new UsageError("no_websocket", "this environment has no WebSocket; pass one as openSocket");
  }
  return new WebSocket(url, protocols);
}

type State = "connecting" | "open" | "stopping" | "ended";

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: TuttiError) => void;
}

/** One open session. `connect` makes it. */
export class Session implements AsyncIterable<ServerEvent> {
  /** @internal Resolves when `started` has come, and rejects when it will not come. */
  readonly opened: Promise<void>;

  readonly #socket: Socket;
  readonly #signal: AbortSignal | undefined;
  readonly #encoding: Encoding;
  readonly #stopTimeoutMs: number;
  readonly #highWaterBytes: number;
  readonly #maxBufferedBytes: number;

  #state: State = "connecting";
  #started: StartedEvent | undefined;
  #finalUntilS: number;
  #resumeFromS: readonly number[];
  /** The error that ended the session; undefined while it runs, and after it has ended as it should. */
  #error: TuttiError | undefined;
  /** At most MAX_UNREAD_EVENTS; one more ends the session with `slow_reader`. */
  #unread: ServerEvent[] = [];
  #isBeingRead = false;
  #isSocketClosed = false;
  #nextFlushId = 0;

  #opening: Waiter | undefined;
  #reader: (() => void) | undefined;
  #writers: Waiter[] = [];
  /** The timer of `timeoutMs`, later of `stopTimeoutMs`. */
  #deadline: ReturnType<typeof setTimeout> | undefined;
  #writableCheck: ReturnType<typeof setInterval> | undefined;
  readonly #listeners: Record<SocketEventType, SocketListener>;
  readonly #onAbort = () => this.#end(new AbortedError(this.#signal?.reason));

  /** @internal Use `connect`. */
  constructor(socket: Socket, options: ConnectOptions) {
    const start = options.start ?? {};
    const timeoutMs = options.timeoutMs ?? CONNECT_TIMEOUT_MS;
    this.#socket = socket;
    this.#signal = options.signal;
    this.#encoding = start.audio?.encoding ?? "pcm_s16le";
    this.#stopTimeoutMs = options.stopTimeoutMs ?? STOP_TIMEOUT_MS;
    this.#highWaterBytes = options.highWaterBytes ?? HIGH_WATER_BYTES;
    this.#maxBufferedBytes = options.maxBufferedBytes ?? MAX_BUFFERED_BYTES;
    this.#resumeFromS = [start.resume?.from_s ?? 0].flat();
    this.#finalUntilS = Math.min(...this.#resumeFromS);
    this.#listeners = {
      open: () => this.#send({ type: "start", ...start }),
      message: (event) => this.#onMessage(event.data),
      error: (event) => this.#onClose(CLOSE_ABNORMAL, "", event),
      close: (event) => {
        this.#isSocketClosed = true;
        this.#onClose(event.code ?? CLOSE_ABNORMAL, event.reason ?? "");
      },
    };
    this.opened = new Promise((resolve, reject) => {
      this.#opening = { resolve, reject };
    });
    for (const [type, listener] of this.#eachListener()) {
      socket.addEventListener(type, listener);
    }
    this.#signal?.addEventListener("abort", this.#onAbort);
    this.#deadline = setTimeout(() => {
      this.#end(new ConnectError("connect_timeout", `no answer from the server within ${timeoutMs} ms`));
    }, timeoutMs);
  }

  /** The server's id of the session. */
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

  /** Audio before this time, in seconds, is final. The application need not keep it any longer. */
  get finalUntilS(): number {
    return this.#finalUntilS;
  }

  /** The same for each channel: the value for `resume.from_s` after a lost connection. */
  get resumeFromS(): readonly number[] {
    return this.#resumeFromS;
  }

  /** The number of bytes that were given to `send` and are not sent yet. */
  get bufferedAmount(): number {
    return this.#socket.bufferedAmount;
  }

  /** Whether audio may be sent. */
  get isOpen(): boolean {
    return this.#state === "open";
  }

  /**
   * Sends audio in the encoding of `start`, cut at any byte. A sender that is faster than real time awaits `writable()`
   * between two calls.
   *
   * @throws UsageError `not_open` before `started` and after the end, `send_buffer_full`, or `bad_audio` if a
   *   Float32Array or Int16Array is not what `start` announced.
   */
  send(audio: ArrayBuffer | ArrayBufferView): void {
    this.#mustBeOpen("send audio");
    this.#mustMatchEncoding(audio);
    const bytes = bytesOf(audio);
    const buffered = this.#socket.bufferedAmount;
    if (buffered >= this.#maxBufferedBytes) {
      throw new UsageError("send_buffer_full", `${buffered} bytes are waiting to be sent; await writable() first`);
    }
    const maxBytes = Math.max(1, this.limits.max_message_bytes);
    for (let start = 0; start < bytes.length; start += maxBytes) {
      this.#socket.send(bytes.subarray(start, start + maxBytes));
    }
  }

  /** Resolves when `bufferedAmount` is below `highWaterBytes`; rejects if the session ends first. */
  writable(): Promise<void> {
    if (this.#state === "ended") {
      return Promise.reject(this.#error ?? new UsageError("not_open", "the session has ended"));
    }
    if (this.#socket.bufferedAmount < this.#highWaterBytes) {
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      this.#writers.push({ resolve, reject });
      this.#writableCheck ??= setInterval(() => this.#releaseWriters(), WRITABLE_CHECK_MS);
    });
  }

  /** Ends open utterances now. Returns the id of the event `flushed`, which comes when all earlier audio is final. */
  flush(id?: FlushId): FlushId {
    this.#mustBeOpen("flush");
    const sent = id === undefined ? this.#nextFlushId++ : id;
    this.#send({ type: "flush", id: sent });
    return sent;
  }

  /** Keeps the session open while there is no audio to send. */
  keepalive(): void {
    this.#mustBeOpen("send keepalive");
    this.#send({ type: "keepalive" });
  }

  /**
   * Tells the server that no more audio follows. The loop continues until everything is final, and ends after
   * `stopped`. A second call has no effect.
   */
  stop(): void {
    if (this.#state !== "open") {
      return;
    }
    this.#state = "stopping";
    this.#send({ type: "stop" });
    this.#deadline = setTimeout(() => {
      const message = `the server did not finish within ${this.#stopTimeoutMs} ms of stop`;
      this.#end(new ConnectionLost("stop_timeout", message, CLOSE_ABNORMAL, this.#finalUntilS));
    }, this.#stopTimeoutMs);
  }

  /** Ends the session at once. Text that is not final yet is lost. Leaving the loop does this too. */
  close(): void {
    this.#end(undefined);
  }

  /**
   * The events after `started`, up to and including `stopped`. Leaving the loop closes the session.
   *
   * @throws SessionError after a fatal error, ConnectionLost, ProtocolError, AbortedError: each of them after the
   *   events before it.
   */
  [Symbol.asyncIterator](): AsyncGenerator<ServerEvent, void, undefined> {
    if (this.#isBeingRead) {
      throw new UsageError("already_reading", "the events of a session can be read once");
    }
    this.#isBeingRead = true;
    return this.#read();
  }

  async *#read(): AsyncGenerator<ServerEvent, void, undefined> {
    try {
      for (;;) {
        const events = this.#unread;
        this.#unread = [];
        yield* events;
        if (this.#unread.length > 0) {
          continue;
        }
        if (this.#error !== undefined) {
          throw this.#error;
        }
        if (this.#state === "ended") {
          return;
        }
        await new Promise<void>((resolve) => {
          this.#reader = resolve;
        });
      }
    } finally {
      this.close();
    }
  }

  #send(command: Command): void {
    this.#socket.send(JSON.stringify(command));
  }

  #onMessage(data: unknown): void {
    let event: ServerEvent;
    try {
      event = parseEvent(parseJson(data));
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        throw error;
      }
      this.#end(error);
      return;
    }
    if (event.type === "error" && event.fatal) {
      this.#end(new SessionError(event.code, event.message, this.#finalUntilS));
    } else if (this.#state === "connecting") {
      this.#onFirstEvent(event);
    } else {
      this.#onEvent(event);
    }
  }

  #onFirstEvent(event: ServerEvent): void {
    if (event.type !== "started") {
      // A newer server may send other events first; only `started` opens the session.
      return;
    }
    this.#started = event;
    this.#state = "open";
    clearTimeout(this.#deadline);
    this.#opening?.resolve();
    this.#opening = undefined;
  }

  #onEvent(event: ServerEvent): void {
    if (event.type === "utterance") {
      this.#finalUntilS = Math.max(this.#finalUntilS, event.final_until_s);
      this.#resumeFromS = event.resume_from_s;
    }
    if (this.#unread.length >= MAX_UNREAD_EVENTS) {
      const message = `${MAX_UNREAD_EVENTS} events have not been read`;
      this.#end(new SessionError("slow_reader", message, this.#finalUntilS));
      return;
    }
    this.#unread.push(event);
    if (event.type === "stopped") {
      this.#end(undefined);
    } else {
      this.#wakeReader();
    }
  }

  #onClose(code: number, reason: string, cause?: SocketEvent): void {
    const why = reason === "" ? "" : `: ${reason}`;
    if (this.#state === "connecting") {
      const message = `the connection was closed before the session started (${code}${why})`;
      this.#end(new ConnectError("connect_failed", message, code, cause));
    } else {
      const message = `the connection was closed before the session had ended (${code}${why})`;
      this.#end(new ConnectionLost("connection_lost", message, code, this.#finalUntilS, cause));
    }
  }

  /** The only way to end: removes listeners and timers, closes the socket, and wakes every caller that waits. */
  #end(error: TuttiError | undefined): void {
    if (this.#state === "ended") {
      return;
    }
    this.#state = "ended";
    this.#error = error;
    clearTimeout(this.#deadline);
    clearInterval(this.#writableCheck);
    this.#signal?.removeEventListener("abort", this.#onAbort);
    for (const [type, listener] of this.#eachListener()) {
      this.#socket.removeEventListener(type, listener);
    }
    if (!this.#isSocketClosed) {
      closeQuietly(this.#socket);
    }
    const closed = error ?? new UsageError("not_open", "the session was closed");
    this.#opening?.reject(closed);
    this.#opening = undefined;
    for (const writer of this.#writers.splice(0)) {
      writer.reject(closed);
    }
    this.#wakeReader();
  }

  #wakeReader(): void {
    this.#reader?.();
    this.#reader = undefined;
  }

  #releaseWriters(): void {
    if (this.#socket.bufferedAmount < this.#highWaterBytes) {
      clearInterval(this.#writableCheck);
      this.#writableCheck = undefined;
      for (const writer of this.#writers.splice(0)) {
        writer.resolve();
      }
    }
  }

  #eachListener(): [SocketEventType, SocketListener][] {
    return Object.entries(this.#listeners) as [SocketEventType, SocketListener][];
  }

  #mustBeOpen(what: string): void {
    if (this.#state !== "open") {
      const why = this.#state === "stopping" ? "it has been stopped" : `it is ${this.#state}`;
      throw new UsageError("not_open", `the session cannot ${what}: ${why}`, this.#error);
    }
  }

  #mustMatchEncoding(audio: ArrayBuffer | ArrayBufferView): void {
    const wanted = audio instanceof Float32Array ? "pcm_f32le" : audio instanceof Int16Array ? "pcm_s16le" : undefined;
    if (wanted !== undefined && wanted !== this.#encoding) {
      const got = audio instanceof Float32Array ? "a Float32Array" : "an Int16Array";
      throw new UsageError("bad_audio", `audio: expected ${this.#encoding}, as start said, got ${got}`);
    }
  }
}

function bytesOf(audio: ArrayBuffer | ArrayBufferView): Uint8Array {
  return ArrayBuffer.isView(audio)
    ? new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength)
    : new Uint8Array(audio);
}

/** Closes a socket that has no listeners. Without a listener for "error", the package `ws` would end the process. */
function closeQuietly(socket: Socket): void {
  const ignore = () => {};
  const onClose = () => {
    socket.removeEventListener("error", ignore);
    socket.removeEventListener("close", onClose);
  };
  socket.addEventListener("error", ignore);
  socket.addEventListener("close", onClose);
  socket.close(CLOSE_DONE);
}
