/** The time of the transcript: seconds of audio so far. A new session begins at this time, so that times never run backwards. */

import { clock } from "../tutti/clock.js";
import { page } from "./elements.js";

/** A longer delay than this, in seconds, is shown in another colour. */
const SLOW_S = 2;

export let nowS = 0;

/** Sets the time and shows it. */
export function setNow(seconds) {
  nowS = seconds;
  page.elapsed.textContent = clock(nowS);
}

/** Shows how far the text is behind the speech; undefined: not known. */
export function showDelay(delayS) {
  page.delay.textContent = delayS === undefined ? "–" : `${Math.max(0, delayS).toFixed(1)} s`;
  page.delay.classList.toggle("slow", delayS !== undefined && delayS > SLOW_S);
}
