/**
 * All errors that this package throws.
 *
 *     TuttiError
 *     ├── UsageError        a mistake of the application: a wrong option or call, or a full send buffer
 *     ├── ConnectError      no session was opened
 *     ├── AbortedError      the application's AbortSignal fired
 *     ├── SessionError      the server ended the session with a fatal error; `code` is the one on the wire
 *     ├── RequestError      the server refused a file
 *     ├── ConnectionLost    the connection ended before the session did
 *     ├── ProtocolError     the server sent something that is not an event
 *     └── MicrophoneError   the browser gives no audio
 */

/** The base of all errors of this package. */
export class TuttiError extends Error {
  /** The name of the class, written out because minifiers rename the class itself. */
  override name = "TuttiError";
  /** For programs: it does not change between versions. `message` is for people, and may change. */
  readonly code: string;

  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** The application made a mistake: a wrong option, a call at the wrong moment, or a full send buffer. */
export class UsageError extends TuttiError {
  override name = "UsageError";
}

/** No session was opened. */
export class ConnectError extends TuttiError {
  override name = "ConnectError";
  /** The WebSocket close code; undefined if the connection was not closed, but took too long. */
  readonly closeCode: number | undefined;

  constructor(code: string, message: string, closeCode?: number, cause?: unknown) {
    super(code, message, cause);
    this.closeCode = closeCode;
  }
}

/** The application's AbortSignal fired. */
export class AbortedError extends TuttiError {
  override name = "AbortedError";

  constructor(reason: unknown) {
    super("aborted", "aborted by the caller's signal", reason);
  }
}

/** The server ended the session with a fatal error. */
export class SessionError extends TuttiError {
  override name = "SessionError";
  /** Audio before this time, in seconds, is final. A new session can continue here with `resume.from_s`. */
  readonly finalUntilS: number;

  constructor(code: string, message: string, finalUntilS: number) {
    super(code, message);
    this.finalUntilS = finalUntilS;
  }
}

/** The server refused a file. `code` is the server's, such as `invalid_file` or `invalid_api_key`. */
export class RequestError extends TuttiError {
  override name = "RequestError";
  /** The status of the HTTP response. */
  readonly status: number;

  constructor(code: string, message: string, status: number) {
    super(code, message);
    this.status = status;
  }
}

/** The connection ended before the session did. */
export class ConnectionLost extends TuttiError {
  override name = "ConnectionLost";
  /** The WebSocket close code, 1006 if the connection broke without one. */
  readonly closeCode: number;
  /** Audio before this time, in seconds, is final. A new session can continue here with `resume.from_s`. */
  readonly finalUntilS: number;

  constructor(code: string, message: string, closeCode: number, finalUntilS: number, cause?: unknown) {
    super(code, message, cause);
    this.closeCode = closeCode;
    this.finalUntilS = finalUntilS;
  }
}

/** The server sent something that is not an event. `field` is the path of the wrong field. */
export class ProtocolError extends TuttiError {
  override name = "ProtocolError";
  readonly field: string;
  readonly expected: string;
  readonly got: unknown;

  constructor(field: string, expected: string, got: unknown, cause?: unknown) {
    super("bad_event", `${field}: expected ${expected}, got ${shorten(got)}`, cause);
    this.field = field;
    this.expected = expected;
    this.got = got;
  }
}

/** The browser gives no audio. */
export class MicrophoneError extends TuttiError {
  override name = "MicrophoneError";
}

/** The longest value that an error message shows in full. */
const SHOWN_CHARACTERS = 80;

/** A value as text for an error message: JSON where possible, and cut to `SHOWN_CHARACTERS`. */
function shorten(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length <= SHOWN_CHARACTERS ? text : `${text.slice(0, SHOWN_CHARACTERS - 1)}…`;
}
