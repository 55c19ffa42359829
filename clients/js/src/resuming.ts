/** What the end of a connection means for its session, and where the next connection begins. This module does no I/O. */

import { CLOSE_ABNORMAL, type End } from "./connection.js";
import type { Continuity } from "./continuity.js";
import { ConnectError, ConnectionLost, SessionError, type TuttiError } from "./errors.js";
import type { StartedEvent, StartOptions } from "./events.js";

/** Close codes after which a session can go on: the server or the network failed, not the client. */
const RESUMABLE_CLOSE_CODES = [1001, 1005, 1006, 1011, 1012, 1013, 1014];
/**
 * The server's error after a long time without a message. The session goes on when there is something to send: browsers
 * freeze pages that are hidden, which cannot send `keepalive` then.
 */
const IDLE = "idle";
/** Errors of the server that come before one of these close codes. */
const RESUMABLE_ERRORS = ["engine_failed", "engine_stalled", "no_engine", "draining", "overloaded", "session_limit", IDLE];
/** Times of the server are rounded, and differ by no more than this from the exact ones, in seconds. */
const ROUNDING_S = 1e-6;

/** Whether the server has ended the connection because nothing came. */
export function isIdle(end: End): boolean {
  return end.kind === "failed" && end.event.code === IDLE;
}

/** Whether the session can go on with another connection. */
export function mayResume(end: End): boolean {
  switch (end.kind) {
    case "closed":
      return RESUMABLE_CLOSE_CODES.includes(end.code);
    case "failed":
      return RESUMABLE_ERRORS.includes(end.event.code);
    case "late":
      return true;
    case "invalid":
      // The application had no key: it may have to ask for one over the network that is lost.
      return end.error instanceof ConnectError;
  }
}

/** The fields of `resume` for a connection whose first sample has this time. */
export function resumeAt(continuity: Continuity, audioFromS: number): NonNullable<StartOptions["resume"]> {
  const { resumeFromS, detectorFromS, languages, voices } = continuity;
  const fromS = resumeFromS.map((timeS) => Math.max(timeS, audioFromS));
  const untranslated = continuity.translations?.missing(fromS);
  // Times are rounded: one that is this little before the first sample means this sample.
  const knownS = detectorFromS.map((timeS) => (timeS !== null && timeS >= audioFromS - ROUNDING_S ? timeS : null));
  return {
    // A list needs a time for each channel.
    from_s: fromS.length > 1 ? fromS : Math.min(...fromS),
    ...(audioFromS < Math.min(...fromS) ? { audio_from_s: audioFromS } : {}),
    ...(knownS.some((timeS) => timeS !== null) ? { detector_from_s: knownS } : {}),
    ...(languages.some(Boolean) ? { language: languages } : {}),
    ...(untranslated?.length ? { untranslated } : {}),
    ...(voices === undefined ? {} : { voices }),
  };
}

/** The options of `start` with which a session goes on in the room in which it has begun, if it has one. */
export function inItsRoom(start: StartOptions, started: StartedEvent | undefined): StartOptions {
  return started?.room === undefined
    ? start
    : { ...start, room: { ...start.room, name: started.room.name, token: started.room.token } };
}

/** @param url the address of a session that no connection has opened; undefined if one has. */
export function errorOf(end: End, url: string | undefined, finalUntilS: number): TuttiError {
  switch (end.kind) {
    case "closed": {
      const why = end.code + (end.reason && `: ${end.reason}`);
      if (url === undefined) {
        const message = `the connection was lost (${why})`;
        return new ConnectionLost("connection_lost", message, end.code, finalUntilS, end.cause);
      }
      // Node.js tells in the event of an error what is wrong, and browsers do not.
      const told = (end.cause as { readonly message?: unknown } | undefined)?.message;
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
