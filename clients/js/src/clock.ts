/** The clock of waits and time limits. */

/** Milliseconds on a clock that is never set back; where the environment has none, on the clock of the system. */
export function nowMs(): number {
  return typeof performance === "undefined" ? Date.now() : performance.now();
}
