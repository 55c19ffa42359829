/** How fast a session may send audio that was recorded before. This module has no clock. */
/** The server gives a client that is ahead of the clock its allowance back at this pace (docs/protocol.md). */
const PACE = 1.5;
/** What is not used of the allowance: audio that the network delays arrives closer together than it was sent. */
const SHARE = 0.8;
/** The server's count of how far the audio of a connection is ahead of the clock. */
export class Pace {
    #limitS;
    #aheadS = 0;
    #updatedMs;
    /** @param allowanceS how far the server lets the audio run ahead, in seconds. */
    constructor(allowanceS, nowMs) {
        this.#limitS = allowanceS * SHARE;
        this.#updatedMs = nowMs;
    }
    /** Audio was sent. */
    add(durationS, nowMs) {
        this.#drain(nowMs);
        this.#aheadS += durationS;
    }
    /** How much audio may be sent now, in seconds. */
    allowedS(nowMs) {
        this.#drain(nowMs);
        return Math.max(0, this.#limitS - this.#aheadS);
    }
    /** The time until so much audio may be sent, in milliseconds. */
    waitMs(durationS, nowMs) {
        return (Math.max(0, durationS - this.allowedS(nowMs)) / PACE) * 1000;
    }
    #drain(nowMs) {
        this.#aheadS = Math.max(0, this.#aheadS - ((nowMs - this.#updatedMs) / 1000) * PACE);
        this.#updatedMs = nowMs;
    }
}
