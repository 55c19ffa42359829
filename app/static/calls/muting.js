/**
 * Mutes a recording where its text was redacted. The audio device's own clock switches the sound off and on, so that it
 * is right in tabs in the background, too, where timers are late.
 */

/** So much before and after a redacted place is muted, too: times of words are not exact. In seconds. */
const MARGIN_S = 0.2;
/** At most so many places are planned ahead. They are planned again several times a second. */
const MAX_PLANNED = 20;
const EVENTS = ["play", "playing", "pause", "waiting", "seeking", "seeked", "ratechange", "timeupdate"];

let context;
let gain;
let spans = [];
let element;

/** Mutes these places from now on. Throws if the browser cannot. */
export function muteIn(audio, redactions) {
  spans = redactions.map(({ startS, endS }) => ({ startS: startS - MARGIN_S, endS: endS + MARGIN_S }));
  if (spans.length > 0 && gain === undefined) {
    // From then on, the element is heard through the context alone. Where a step fails, nothing counts as done.
    const made = new AudioContext();
    const volume = new GainNode(made);
    made.createMediaElementSource(audio).connect(volume).connect(made.destination);
    [context, gain, element] = [made, volume, audio];
    EVENTS.forEach((type) => audio.addEventListener(type, plan));
  }
  plan();
}

/** A browser starts a context only when the user does something. Waits until there is sound. */
export async function onPlay() {
  await context?.resume();
}

export function isMutedAt(timeS) {
  return spans.some(({ startS, endS }) => startS <= timeS && timeS < endS);
}

function plan() {
  if (gain === undefined) {
    return;
  }
  const { currentTime: atS, playbackRate, paused } = element;
  const nowS = context.currentTime;
  gain.gain.cancelScheduledValues(0);
  gain.gain.setValueAtTime(isMutedAt(atS) ? 0 : 1, nowS);
  if (!paused) {
    for (const { time, value } of changes(atS)) {
      gain.gain.setValueAtTime(value, nowS + (time - atS) / playbackRate);
    }
  }
}

/** When the sound goes off and on after a time. Where places overlap, it stays off. */
function changes(atS) {
  const edges = spans.filter(({ endS }) => endS > atS).slice(0, MAX_PLANNED).flatMap(({ startS, endS }) => [startS, endS]);
  const times = edges.filter((each) => each > atS).sort((a, b) => a - b);
  return times.map((time) => ({ time, value: isMutedAt(time) ? 0 : 1 }));
}
