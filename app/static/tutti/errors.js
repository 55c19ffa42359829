export class TuttiError extends Error {
    constructor(code, message, cause) {
        super(message, cause === undefined ? undefined : { cause });
        this.name = new.target.name;
        this.code = code;
    }
}
export class UsageError extends TuttiError {
}
export class ConnectError extends TuttiError {
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
    constructor(code, message, finalUntilS) {
        super(code, message);
        this.finalUntilS = finalUntilS;
    }
}
export class RequestError extends TuttiError {
    constructor(code, message, status) {
        super(code, message);
        this.status = status;
    }
}
export class ConnectionLost extends TuttiError {
    constructor(code, message, closeCode, finalUntilS, cause) {
        super(code, message, cause);
        this.closeCode = closeCode;
        this.finalUntilS = finalUntilS;
    }
}
export class ProtocolError extends TuttiError {
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
function shorten(value) {
    const text = JSON.stringify(value) ?? "nothing";
    return text.length <= SHOWN_CHARACTERS ? text : `${text.slice(0, SHOWN_CHARACTERS - 1)}…`;
}
