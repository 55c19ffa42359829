/** Plays the recording of the call, and knows the position in the call, also where there is no recording. */

import { clock } from "../tutti/clock.js";
import { page } from "./elements.js";
import { notice } from "./messages.js";
import { isMutedAt, muteIn, onPlay } from "./muting.js";

/** How far the buttons and keys go. */
export const STEP_S = 5;
/** A recording whose length differs by more from that of the record may be another one. */
const MAX_DIFFERENCE_S = 1.5;

const { audio } = page;
const listeners = [];
let nowS = 0;
let durationS = 0;
let frame;

/** `listener` is called with the time whenever the position changes, and with whether it jumped there. */
export function onTime(listener) {
  listeners.push(listener);
}

export function hasRecording() {
  return audio.src !== "";
}

/** Gets ready for a call without a recording. */
export function showPlayer(record) {
  pause();
  if (hasRecording()) {
    URL.revokeObjectURL(audio.src);
    audio.removeAttribute("src");
    audio.load();
  }
  durationS = record.durationS;
  page.addRecording.hidden = page.addNote.hidden = false;
  page.controls.hidden = true;
  page.whole.textContent = clock(durationS);
  tell(0, false);
}

/** Plays this file from now on. The places of the redactions are silent. */
export function addRecording(file, { redactions }) {
  try {
    muteIn(audio, redactions);
  } catch (error) {
    console.warn(error);
    notice("This browser cannot mute what was redacted, so it does not play the recording.");
    return;
  }
  if (hasRecording()) {
    URL.revokeObjectURL(audio.src);
  }
  audio.src = URL.createObjectURL(file);
  audio.playbackRate = audio.defaultPlaybackRate = Number(page.speed.value);
  page.addRecording.hidden = page.addNote.hidden = true;
  page.controls.hidden = false;
  page.playingName.textContent = file.name;
  page.playingName.title = file.name;
}

/** Goes to a time; with `plays`, the recording plays from there if there is one. */
export function goTo(timeS, { plays = false } = {}) {
  const toS = Math.min(durationS, Math.max(0, timeS));
  if (hasRecording()) {
    audio.currentTime = toS;
  }
  tell(toS, true);
  if (plays && hasRecording()) {
    void play();
  }
}

/** Goes so many seconds on; negative: back. */
export function step(seconds) {
  goTo(nowS + seconds);
}

export function togglePlaying() {
  if (!hasRecording()) {
    page.recordingFile.click();
  } else if (audio.paused) {
    void play();
  } else {
    audio.pause();
  }
}

export function pause() {
  audio.pause();
}

export function position() {
  return nowS;
}

async function play() {
  try {
    await onPlay();
    await audio.play();
  } catch (error) {
    // Another press of the button, or another file, may have stopped it. Errors of the file come with its event.
    console.info("The recording does not play:", error);
  }
}

function tell(timeS, isJump) {
  nowS = timeS;
  page.now.textContent = clock(timeS);
  page.muted.textContent = hasRecording() && isMutedAt(timeS) ? "Redacted: muted" : "";
  listeners.forEach((listener) => listener(timeS, isJump));
}

function onFrame() {
  tell(audio.currentTime, false);
  frame = requestAnimationFrame(onFrame);
}

page.addRecording.addEventListener("click", () => page.recordingFile.click());
page.play.addEventListener("click", togglePlaying);
page.back.addEventListener("click", () => step(-STEP_S));
page.on.addEventListener("click", () => step(STEP_S));
page.speed.addEventListener("change", () => {
  audio.playbackRate = audio.defaultPlaybackRate = Number(page.speed.value);
});
audio.addEventListener("play", () => {
  document.body.dataset.playing = "";
  page.play.setAttribute("aria-label", "Pause");
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(onFrame);
});
audio.addEventListener("pause", () => {
  delete document.body.dataset.playing;
  page.play.setAttribute("aria-label", "Play");
  cancelAnimationFrame(frame);
});
// Tabs in the background draw no frames.
audio.addEventListener("timeupdate", () => audio.paused || tell(audio.currentTime, false));
audio.addEventListener("loadedmetadata", () => {
  audio.currentTime = Math.min(nowS, audio.duration);
  if (Number.isFinite(audio.duration) && Math.abs(audio.duration - durationS) > MAX_DIFFERENCE_S) {
    notice(`This recording is ${clock(audio.duration)} long, and the record is of one of ${clock(durationS)}. It may be another call.`);
  }
});
audio.addEventListener("error", () => {
  if (hasRecording()) {
    notice(`This browser cannot play ${page.playingName.textContent}. The record is shown without it.`);
    page.controls.hidden = true;
    page.addRecording.hidden = page.addNote.hidden = false;
    audio.removeAttribute("src");
  }
});
