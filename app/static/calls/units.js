/** Lengths and shares for people. */

import { clock } from "../tutti/clock.js";

/** A length as `4.2 s`, or as `1:03` from a minute on. */
export function length(seconds) {
  return seconds < 60 ? `${seconds.toFixed(1)} s` : clock(seconds);
}

/** A share of 0 to 1 in percent. */
export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** A number with its noun: "1 turn", "3 turns". */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
