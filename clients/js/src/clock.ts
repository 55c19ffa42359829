/** The clock of waits and time limits, and times for people. */

/** The longest time of a timer, in milliseconds: 23 days. From 2 to the 31st on, as for Infinity, it would fire at once. */
export const LONGEST_MS = 2e9;

/** Milliseconds on a clock that is never set back; where the environment has none, on the clock of the system. */
export function nowMs(): number {
  return typeof performance === "undefined" ? Date.now() : performance.now();
}

/** A time as `m:ss` or `h:mm:ss`. */
export function clock(seconds: number): string {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60];
  const hours = Math.floor(whole / 3600);
  return (hours > 0 ? [hours, ...parts] : parts)
    .map((part, index) => (index === 0 ? String(part) : String(part).padStart(2, "0")))
    .join(":");
}
