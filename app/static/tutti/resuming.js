import { CLOSE_ABNORMAL } from "./connection.js";
import { ConnectError, ConnectionLost, SessionError } from "./errors.js";
const RESUMABLE_CLOSE_CODES = [1001, 1005, 1006, 1011, 1012, 1013, 1014];
const IDLE = "idle";
const RESUMABLE_ERRORS = ["engine_failed", "engine_stalled", "no_engine", "draining", "overloaded", "session_limit", IDLE];
const ROUNDING_S = 1e-6;
export function isIdle(end) {
    return end.kind === "failed" && end.event.code === IDLE;
}
export function mayResume(end) {
    switch (end.kind) {
        case "closed":
            return RESUMABLE_CLOSE_CODES.includes(end.code);
        case "failed":
            return RESUMABLE_ERRORS.includes(end.event.code);
        case "late":
            return true;
        case "invalid":
            return end.error instanceof ConnectError;
    }
}
export function resumeAt(continuity, audioFromS) {
    const { resumeFromS, detectorFromS, languages, voices } = continuity;
    const fromS = resumeFromS.map((timeS) => Math.max(timeS, audioFromS));
    const untranslated = continuity.translations?.missing(fromS);
    const knownS = detectorFromS.map((timeS) => (timeS !== null && timeS >= audioFromS - ROUNDING_S ? timeS : null));
    return {
        from_s: fromS.length > 1 ? fromS : Math.min(...fromS),
        ...(audioFromS < Math.min(...fromS) ? { audio_from_s: audioFromS } : {}),
        ...(knownS.some((timeS) => timeS !== null) ? { detector_from_s: knownS } : {}),
        ...(languages.some(Boolean) ? { language: languages } : {}),
        ...(untranslated?.length ? { untranslated } : {}),
        ...(voices === undefined ? {} : { voices }),
    };
}
export function inItsRoom(start, started) {
    return started?.room === undefined
        ? start
        : { ...start, room: { ...start.room, name: started.room.name, token: started.room.token } };
}
export function errorOf(end, url, finalUntilS) {
    switch (end.kind) {
        case "closed": {
            const why = end.code + (end.reason && `: ${end.reason}`);
            if (url === undefined) {
                const message = `the connection was lost (${why})`;
                return new ConnectionLost("connection_lost", message, end.code, finalUntilS, end.cause);
            }
            const told = end.cause?.message;
            const reason = told || (end.code === CLOSE_ABNORMAL ? "does the server run, and allow this origin?" : "it was closed");
            return new ConnectError("connect_failed", `cannot open a session at ${url}: ${reason} (${why})`, end.code, end.cause);
        }
        case "failed":
            return new SessionError(end.event.code, end.event.message, finalUntilS);
        case "late": {
            const message = `no answer from ${url ?? "the server"} within ${end.timeoutMs} ms`;
            return url === undefined
                ? new ConnectionLost("connect_timeout", message, CLOSE_ABNORMAL, finalUntilS)
                : new ConnectError("connect_timeout", message);
        }
        case "invalid":
            return end.error;
    }
}
