/** Gives a connection what its session has to send: at once, and on a resumed one no faster than the server allows. */

import { nowMs } from "./clock.js";
import type { Connection } from "./connection.js";
import type { Limits } from "./events.js";
import type { Outgoing } from "./outgoing.js";
import { Pace } from "./pace.js";

/** The server lets a resumed session run further ahead: by its longest utterance, and by this (docs/protocol.md). */
const REPLAY_ALLOWANCE_S = 30;
/** The server's default of `endpointing.max_utterance_s`. */
const MAX_UTTERANCE_S = 60;
/** Audio that may not be sent again at once is sent in pieces of at least this length. */
const REPLAY_STEP_S = 1;

/** The sender of a session, over all of its connections. */
export class Sender {
  readonly #outgoing: Outgoing;
  /** How fast this connection may send audio that was recorded before; undefined when all of that is sent. */
  #pace: Pace | undefined;

  constructor(outgoing: Outgoing) {
    this.#outgoing = outgoing;
  }

  /** A connection has resumed the session: audio that was recorded before is sent no faster than the server allows. */
  resume(limits: Limits, maxUtteranceS: number = MAX_UTTERANCE_S): void {
    this.#pace = new Pace(limits.max_ahead_s + maxUtteranceS + REPLAY_ALLOWANCE_S, nowMs());
  }

  /**
   * Sends what may be sent now: audio and flushes in their order. Returns the time in milliseconds until more may be
   * sent; undefined when all is sent; Infinity if the connection is lost, or the server has to answer flushes first.
   */
  send(connection: Connection, limits: Limits): number | undefined {
    while (connection.isOpen) {
      const item = this.#outgoing.next(this.#allowedBytes(limits));
      if (item === undefined) {
        break;
      }
      if ("audio" in item) {
        this.#pace?.add(this.#outgoing.secondsOf(item.audio.length), nowMs());
        connection.sendAudio(item.audio);
      } else {
        connection.send({ type: "flush", id: item.flush });
      }
    }
    if (!connection.isOpen || this.#outgoing.isWaitingForAnswers) {
      return Infinity;
    }
    if (this.#outgoing.unsentBytes > 0) {
      return this.#pace?.waitMs(REPLAY_STEP_S, nowMs()) ?? 0;
    }
    this.#pace = undefined;
    return undefined;
  }

  /** The connection is lost. */
  detach(): void {
    this.#pace = undefined;
    this.#outgoing.detach();
  }

  /** How much may be sent in one message now. Audio that was recorded before waits until some of it may be sent. */
  #allowedBytes(limits: Limits): number {
    const maxBytes = Math.max(1, limits.max_message_bytes);
    const allowedS = this.#pace?.allowedS(nowMs()) ?? Infinity;
    return allowedS < REPLAY_STEP_S ? 0 : Math.min(maxBytes, this.#outgoing.bytesOf(allowedS));
  }
}
