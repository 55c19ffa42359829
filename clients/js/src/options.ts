/** The options of `connect`, and their defaults. */

import { UsageError } from "./errors.js";
import type { StartOptions } from "./events.js";
import type { Signal } from "./signal.js";
import type { OpenSocket } from "./socket.js";

/** Default of `timeoutMs`: a server of several models may need 30 s to load one. */
export const CONNECT_TIMEOUT_MS = 40_000;
/** Default of `stopTimeoutMs`. */
export const STOP_TIMEOUT_MS = 30_000;
/** About 5 s of 48 kHz 16-bit mono. A connection that is so late does not recover in time for captions. */
export const HIGH_WATER_BYTES = 512 * 1024;
/** About 90 s of 48 kHz 16-bit mono. */
export const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;
/** Default of `resumeBufferS`: an utterance of the usual longest length, and minutes without a server. */
export const RESUME_BUFFER_S = 300;
/** The least `resumeBufferS` but 0: less could not hold an utterance of the usual longest length. */
const MIN_RESUME_BUFFER_S = 60;
/** Default of `resumeTimeoutMs`. */
export const RESUME_TIMEOUT_MS = 300_000;

/** A key, or a function that is asked for it. It has as long as a connection may take to open. */
export type ApiKey = string | (() => string | undefined | Promise<string | undefined>);

/** The options of `connect`. */
export interface ConnectOptions {
  /** The fields of the `start` message, named as on the wire. */
  readonly start?: StartOptions | undefined;
  /**
   * The API key or client secret. A function is asked for it before each connection, also after a loss: client secrets
   * are valid for minutes. It is sent as a subprotocol, because browsers cannot set the headers of a WebSocket.
   */
  readonly apiKey?: ApiKey | undefined;
  /** Cancels `connect`, and later the session. */
  readonly signal?: Signal | undefined;
  /** How long the server may take to answer with `started`. Default: 40 s. The connection must be open within 10 s. */
  readonly timeoutMs?: number | undefined;
  /** How long the server may send nothing after `stop()`, while it makes the rest final. Default: 30 s. */
  readonly stopTimeoutMs?: number | undefined;
  /** `writable()` waits until fewer bytes than this are unsent. Default: 512 KiB. */
  readonly highWaterBytes?: number | undefined;
  /** `send` throws an error while this many bytes are unsent. Default: 8 MiB. */
  readonly maxBufferedBytes?: number | undefined;
  /**
   * How much audio is kept for the case that the connection is lost, in seconds: what is not final yet, and what comes
   * until there is another connection. At least 60, or 0: a lost connection ends the session then. Default: 300 s.
   */
  readonly resumeBufferS?: number | undefined;
  /** How long the session tries to reconnect. Default: 5 min. */
  readonly resumeTimeoutMs?: number | undefined;
  /**
   * Opens the WebSocket. It is needed where there is no global `WebSocket`; with the package `ws` it is
   * `(url, protocols) => new WebSocket(url, protocols)`.
   */
  readonly openSocket?: OpenSocket | undefined;
}

/** @throws UsageError `bad_option` */
export function checkOptions({ resumeBufferS = RESUME_BUFFER_S }: ConnectOptions): void {
  if (resumeBufferS !== 0 && !(resumeBufferS >= MIN_RESUME_BUFFER_S)) {
    const message = `resumeBufferS: expected ${MIN_RESUME_BUFFER_S} or more, or 0, got ${String(resumeBufferS)}`;
    throw new UsageError("bad_option", message);
  }
}
