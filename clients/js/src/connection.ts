/** One WebSocket connection of a session: sends `start`, checks what comes, and reports its end once. */

import { LONGEST_MS, nowMs } from "./clock.js";
import { ProtocolError, type TuttiError } from "./errors.js";
import {
  type Command,
  type ErrorEvent,
  parseEvent,
  parseJson,
  type ServerEvent,
  type StartedEvent,
  type StartOptions,
} from "./events.js";
import type { Socket, SocketEventType, SocketListener } from "./socket.js";

/** Close codes of RFC 6455, 7.4.1. */
const CLOSE_DONE = 1000;
/** Of a connection in whose place another one comes. After 1000 the server would keep no slot for it. */
export const CLOSE_GIVEN_UP = 4000;
export const CLOSE_ABNORMAL = 1006;

/** A connection whose network takes nothing for this time, in milliseconds, is lost: some losses are reported by nothing. */
const STALL_MS = 10_000;
/**
 * Where the socket does not tell what the network takes, as in React Native, the server is asked whether it is there when
 * it has sent nothing for this time, in milliseconds, although it gets audio.
 */
const QUIET_MS = 15_000;

/** How long a connection may take to open, in milliseconds. */
export const OPEN_TIMEOUT_MS = 10_000;

/** Why a connection has ended, if the client did not end it. */
export type End =
  | { readonly kind: "closed"; readonly code: number; readonly reason: string; readonly cause?: unknown }
  | { readonly kind: "failed"; readonly event: ErrorEvent }
  /** The server sent something that is not an event, or the connection did not begin. */
  | { readonly kind: "invalid"; readonly error: TuttiError }
  /** The connection did not open in time, or `started` did not come. */
  | { readonly kind: "late"; readonly timeoutMs: number };

/** What a connection needs of its session. */
export interface ConnectionOptions {
  readonly start: StartOptions;
  /** How long the server may take to answer `start`, in milliseconds. */
  readonly timeoutMs: number;
  readonly onStarted: (event: StartedEvent) => void;
  /** Called with each event after `started`. */
  readonly onEvent: (event: ServerEvent) => void;
  /** Finds out over HTTP whether the server is there: 0 if not, undefined if that cannot be known. */
  readonly probe: () => Promise<number | undefined>;
  /** Called once, unless `close` is called before. */
  readonly onEnd: (end: End) => void;
}

/** One connection. It begins with its constructor, and leaves no listener and no timer after its end. */
export class Connection {
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  readonly #listeners: readonly (readonly [SocketEventType, SocketListener])[];
  #deadline: ReturnType<typeof setTimeout> | undefined;
  #isStarted = false;
  #isEnded = false;
  #isSocketClosed = false;
  /** How many bytes of audio the socket was given, and how many of them the network had taken at `#takenAtMs`. */
  #givenBytes = 0;
  #takenBytes = 0;
  #takenAtMs = nowMs();
  /** When the server showed that it is there. */
  #heardAtMs = nowMs();
  #isProbing = false;
  #sentAtMs = nowMs();

  constructor(socket: Socket, options: ConnectionOptions) {
    this.#socket = socket;
    this.#options = options;
    const limit = (timeoutMs: number) => {
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

  /** Whether `started` has come, so that audio may be sent. */
  get isOpen(): boolean {
    return this.#isStarted && !this.#isEnded;
  }

  /** The number of bytes that were given to the socket and are not sent yet. */
  get bufferedAmount(): number {
    return this.#socket.bufferedAmount ?? 0;
  }

  /** For how long nothing was sent, in milliseconds. */
  get silentMs(): number {
    return nowMs() - this.#sentAtMs;
  }

  send(message: Command): void {
    this.#sentAtMs = nowMs();
    this.#socket.send(JSON.stringify(message));
  }

  /** Sends audio. It ends the connection if the network has taken nothing for too long. */
  sendAudio(audio: Uint8Array): void {
    const takenBytes = this.#givenBytes - this.bufferedAmount;
    if (this.#socket.bufferedAmount === undefined) {
      void this.#checkServer();
    } else if (takenBytes > this.#takenBytes || this.bufferedAmount === 0) {
      this.#takenBytes = takenBytes;
      this.#takenAtMs = nowMs();
    } else if (nowMs() - this.#takenAtMs >= STALL_MS) {
      this.#end({ kind: "closed", code: CLOSE_ABNORMAL, reason: `the network took nothing for ${STALL_MS / 1000} s` });
      return;
    }
    this.#givenBytes += audio.length;
    this.#sentAtMs = nowMs();
    this.#socket.send(audio);
  }

  /** Ends the connection without a report. */
  close(code = CLOSE_DONE): void {
    if (this.#isEnded) {
      return;
    }
    this.#isEnded = true;
    clearTimeout(this.#deadline);
    this.#listeners.forEach((each) => this.#socket.removeEventListener(...each));
    if (!this.#isSocketClosed) {
      closeQuietly(this.#socket, code);
    }
  }

  #end(end: End): void {
    if (!this.#isEnded) {
      this.close(end.kind === "closed" ? CLOSE_GIVEN_UP : CLOSE_DONE);
      this.#options.onEnd(end);
    }
  }

  async #checkServer(): Promise<void> {
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

  #onMessage(data: unknown): void {
    this.#heardAtMs = nowMs();
    let event: ServerEvent;
    try {
      event = parseEvent(parseJson(data));
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        throw error;
      }
      this.#end({ kind: "invalid", error });
      return;
    }
    // A server that cannot read `start` says so, and waits for another one.
    if (event.type === "error" && (event.fatal || !this.#isStarted)) {
      this.#end({ kind: "failed", event });
    } else if (this.#isStarted) {
      this.#options.onEvent(event);
    } else if (event.type === "started") {
      // A newer server may send other events before; only `started` opens the session.
      this.#isStarted = true;
      clearTimeout(this.#deadline);
      this.#options.onStarted(event);
    }
  }
}

/** Closes a socket that has no listeners. Without a listener for "error", the package `ws` would end the process. */
function closeQuietly(socket: Socket, code: number): void {
  const ignore = () => {};
  const onClose = () => {
    socket.removeEventListener("error", ignore);
    socket.removeEventListener("close", onClose);
  };
  socket.addEventListener("error", ignore);
  socket.addEventListener("close", onClose);
  socket.close(code);
}
