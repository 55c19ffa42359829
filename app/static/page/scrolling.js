/** Keeps the newest text in view, until the reader scrolls up. */

import { page } from "./elements.js";

/** When the reader scrolls down to within this distance of the end, the page follows the newest text again. */
const FOLLOW_PX = 64;
/** Browsers round heights: a position closer than this is the end. */
const END_PX = 2;

/** Whether the page keeps the newest text in view. It stops as soon as the reader scrolls up. */
let isFollowing = true;
/** The last known scroll position of the transcript. */
let scrolledPx = 0;

page.transcript.addEventListener("scroll", noteScrolling);

page.latest.addEventListener("click", () => {
  isFollowing = true;
  if (document.activeElement === page.latest) {
    page.transcript.focus();
  }
  page.latest.hidden = true;
  follow();
});

window.addEventListener("resize", () => {
  for (const line of page.transcript.querySelectorAll(".line[style]")) {
    line.style.minHeight = "";
  }
});

// Called when there is new text, or when the space for it changes with the window or with the controls, which grow to show
// a message. In each frame the browser calls this after the reader's scrolling and before it draws.
const sizes = new ResizeObserver(follow);
sizes.observe(page.transcript);
sizes.observe(page.transcript.firstElementChild);

function noteScrolling() {
  const { scrollHeight, scrollTop, clientHeight } = page.transcript;
  const belowPx = scrollHeight - scrollTop - clientHeight;
  if (belowPx < END_PX) {
    isFollowing = true;
  } else if (scrollTop !== scrolledPx) {
    isFollowing = scrollTop > scrolledPx && belowPx < FOLLOW_PX;
  }
  scrolledPx = scrollTop;
  page.latest.hidden = isFollowing;
}

function follow() {
  if (isFollowing && page.empty.hidden) {
    page.transcript.scrollTop = page.transcript.scrollHeight;
    scrolledPx = page.transcript.scrollTop;
  }
}
