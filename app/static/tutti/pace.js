const PACE = 1.5;
const SHARE = 0.8;
export class Pace {
    #limitS;
    #aheadS = 0;
    #updatedMs;
    constructor(allowanceS, nowMs) {
        this.#limitS = allowanceS * SHARE;
        this.#updatedMs = nowMs;
    }
    add(durationS, nowMs) {
        this.#drain(nowMs);
        this.#aheadS += durationS;
    }
    allowedS(nowMs) {
        this.#drain(nowMs);
        return Math.max(0, this.#limitS - this.#aheadS);
    }
    waitMs(durationS, nowMs) {
        return (Math.max(0, durationS - this.allowedS(nowMs)) / PACE) * 1000;
    }
    #drain(nowMs) {
        this.#aheadS = Math.max(0, this.#aheadS - ((nowMs - this.#updatedMs) / 1000) * PACE);
        this.#updatedMs = nowMs;
    }
}
