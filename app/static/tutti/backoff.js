const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
export class Backoff {
    #limitMs;
    #beganMs;
    #attempt = 0;
    constructor(limitMs) {
        this.#limitMs = limitMs;
    }
    next(nowMs) {
        this.#beganMs ??= nowMs;
        const leftMs = this.#beganMs + this.#limitMs - nowMs;
        if (leftMs <= 0) {
            return undefined;
        }
        const longestMs = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#attempt);
        this.#attempt += 1;
        return { attempt: this.#attempt, waitMs: Math.min(leftMs, Math.random() * longestMs) };
    }
    reset() {
        this.#beganMs = undefined;
        this.#attempt = 0;
    }
}
