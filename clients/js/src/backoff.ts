/** When to try again after a lost connection: exponential backoff with full jitter, within a time limit. No clock here. */

/** The longest wait before the first attempt, in milliseconds. Each further attempt doubles it. */
const FIRST_WAIT_MS = 500;
/** The longest wait before any attempt, in milliseconds. */
const LONGEST_WAIT_MS = 15_000;

/** The attempts of one outage. */
export class Backoff {
  readonly #limitMs: number;
  #beganMs: number | undefined;
  #attempt = 0;

  constructor(limitMs: number) {
    this.#limitMs = limitMs;
  }

  /** The next attempt, counted from 1, and how long to wait before it; undefined when the time is over. */
  next(nowMs: number): { readonly attempt: number; readonly waitMs: number } | undefined {
    this.#beganMs ??= nowMs;
    const leftMs = this.#beganMs + this.#limitMs - nowMs;
    if (leftMs <= 0) {
      return undefined;
    }
    const longestMs = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#attempt);
    this.#attempt += 1;
    return { attempt: this.#attempt, waitMs: Math.min(leftMs, Math.random() * longestMs) };
  }

  /** The outage is over. */
  reset(): void {
    this.#beganMs = undefined;
    this.#attempt = 0;
  }
}
