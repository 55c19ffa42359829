/** How the transcript is shown: large type, full screen, the size of the text, times. */

import "./colours.js";
import { page } from "./elements.js";
import { change, onChange, settings } from "./settings.js";

const MIN_SIZE = 75;
const MAX_SIZE = 300;
const SIZE_STEP = 25;
/** In the view with large type, the controls disappear when nothing was touched for so long. */
const QUIET_MS = 4_000;

let quietTimer;

applyLook();
onChange(applyLook);
page.full.hidden = document.fullscreenEnabled !== true;

page.large.addEventListener("click", toggleLarge);
page.leaveLarge.addEventListener("click", leaveLarge);
page.full.addEventListener("click", toggleFull);
page.smaller.addEventListener("click", () => resize(-1));
page.larger.addEventListener("click", () => resize(1));
document.addEventListener("fullscreenchange", () => {
  page.full.setAttribute("aria-pressed", String(document.fullscreenElement !== null));
});
for (const type of ["pointermove", "pointerdown", "keydown", "focusin"]) {
  document.addEventListener(type, wake, { passive: true });
}

export function isLarge() {
  return document.body.dataset.view === "large";
}

export function toggleLarge() {
  document.body.dataset.view = isLarge() ? "transcript" : "large";
  page.large.setAttribute("aria-pressed", String(isLarge()));
  applyLook();
  wake();
}

/** Back to the transcript, if the large type is shown. */
export function leaveLarge() {
  if (isLarge()) {
    toggleLarge();
    page.large.focus();
  }
}

export async function toggleFull() {
  try {
    await (document.fullscreenElement === null ? document.documentElement.requestFullscreen() : document.exitFullscreen());
  } catch (error) {
    console.warn("The browser does not show the page in full screen:", error);
  }
}

/** Makes the text of the present view larger by so many steps; negative: smaller. */
export function resize(nSteps) {
  const name = isLarge() ? "largeSize" : "size";
  change({ [name]: Math.min(MAX_SIZE, Math.max(MIN_SIZE, settings[name] + nSteps * SIZE_STEP)) });
}

function applyLook() {
  const { size, largeSize, showTimes } = settings;
  document.documentElement.style.setProperty("--size", String((isLarge() ? largeSize : size) / 100));
  document.body.classList.toggle("without-times", !showTimes);
}

/** Shows the controls of the large type for a while. They stay while one of them has the focus of the keyboard. */
function wake() {
  clearTimeout(quietTimer);
  document.body.classList.remove("quiet");
  if (isLarge()) {
    quietTimer = setTimeout(() => {
      const hasFocus = document.querySelector("footer :focus-visible") !== null;
      document.body.classList.toggle("quiet", isLarge() && !hasFocus);
    }, QUIET_MS);
  }
}
