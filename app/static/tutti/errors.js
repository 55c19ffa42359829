/**
 * Everything this package throws.
 *
 *     TuttiError
 *     ├── UsageError        the caller's mistake: an option, a call at the wrong moment, a full send buffer
 *     ├── ConnectError      no session came about
 *     ├── AbortedError      the caller's AbortSignal fired
 *     ├── SessionError      the server ended the session with a fatal error; `code` is the one on the wire
 *     ├── ConnectionLost    the connection ended before the session did
 *     ├── ProtocolError     the server sent something that is not an event
 *     └── MicrophoneError   the browser gives no audio
 */
export class TuttiError extends Error {
    /** Stable and meant for programs; `message` is meant for people. */
    code;
    constructor(code, message, cause) {
        super(message, cause === undefined ? undefined : { cause });
        this.name = new.target.name;
        this.code = code;
    }
}
export class UsageError extends TuttiError {
}
export class ConnectError extends TuttiError {
    /** The WebSocket close code, if the connection was closed rather than too slow. */
    closeCode;
    constructor(code, message, closeCode, cause) {
        super(code, message, cause);
        this.closeCode = closeCode;
    }
}
export class AbortedError extends TuttiError {
    constructor(reason) {
        super("aborted", "aborted by the caller's signal", reason);
    }
}
export class SessionError extends TuttiError {
    /** Audio before this time is done; a new session may begin with `resume.from_s` here. */
    finalUntilS;
    constructor(code, message, finalUntilS) {
        super(code, message);
        this.finalUntilS = finalUntilS;
    }
}
export class ConnectionLost extends TuttiError {
    /** The WebSocket close code, 1006 if the connection broke without one. */
    closeCode;
    /** Audio before this time is done; a new session may begin with `resume.from_s` here. */
    finalUntilS;
    constructor(code, message, closeCode, finalUntilS, cause) {
        super(code, message, cause);
        this.closeCode = closeCode;
        this.finalUntilS = finalUntilS;
    }
}
export class ProtocolError extends TuttiError {
    field;
    expected;
    got;
    constructor(field, expected, got, cause) {
        super("bad_event", `${field}: expected ${expected}, got ${shorten(got)}`, cause);
        this.field = field;
        this.expected = expected;
        this.got = got;
    }
}
export class MicrophoneError extends TuttiError {
}
const SHOWN_CHARACTERS = 80;
/** What came, as JSON where possible, cut to a length fit for a message. */
function shorten(value) {
    const text = value === undefined ? "nothing" : (JSON.stringify(value) ?? String(value));
    return text.length <= SHOWN_CHARACTERS ? text : `${text.slice(0, SHOWN_CHARACTERS - 1)}…`;
}
