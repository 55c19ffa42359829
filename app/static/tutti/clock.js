/** The clock of waits and time limits. */
/** The longest time of a timer, in milliseconds: 23 days. From 2 to the 31st on, as for Infinity, it would fire at once. */
export const LONGEST_MS = 2e9;
/** Milliseconds on a clock that is never set back; where the environment has none, on the clock of the system. */
export function nowMs() {
    return typeof performance === "undefined" ? Date.now() : performance.now();
}
