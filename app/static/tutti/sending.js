import { nowMs } from "./clock.js";
import { Pace } from "./pace.js";
const REPLAY_ALLOWANCE_S = 30;
const MAX_UTTERANCE_S = 60;
const REPLAY_STEP_S = 1;
export class Sender {
    #outgoing;
    #pace;
    constructor(outgoing) {
        this.#outgoing = outgoing;
    }
    resume(limits, maxUtteranceS = MAX_UTTERANCE_S) {
        this.#pace = new Pace(limits.max_ahead_s + maxUtteranceS + REPLAY_ALLOWANCE_S, nowMs());
    }
    send(connection, limits) {
        while (connection.isOpen) {
            const item = this.#outgoing.next(this.#allowedBytes(limits));
            if (item === undefined) {
                break;
            }
            if ("audio" in item) {
                this.#pace?.add(this.#outgoing.secondsOf(item.audio.length), nowMs());
                connection.sendAudio(item.audio);
            }
            else {
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
    detach() {
        this.#pace = undefined;
        this.#outgoing.detach();
    }
    #allowedBytes(limits) {
        const maxBytes = Math.max(1, limits.max_message_bytes);
        const allowedS = this.#pace?.allowedS(nowMs()) ?? Infinity;
        return allowedS < REPLAY_STEP_S ? 0 : Math.min(maxBytes, this.#outgoing.bytesOf(allowedS));
    }
}
