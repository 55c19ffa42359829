/**
 * The captions page. It sends the microphone to the server, one session at a time, and shows the text that comes back.
 * The JavaScript client in ./tutti/ handles the session and its messages; each module in ./page/ has one job.
 */

import { copy } from "./page/clipboard.js";
import { page } from "./page/elements.js";
import { showContents, transcript } from "./page/lines.js";
import { hideMessage } from "./page/messages.js";
import { showModel } from "./page/model.js";
import { resetClock, run, start, useKey } from "./page/run.js";
import "./page/scrolling.js";
import { RUNNING, show, state } from "./page/status.js";

/** How long the button shows that the transcript was copied. */
const COPIED_SHOWN_MS = 2_000;

page.toggle.addEventListener("click", () => {
  if (state === "live") {
    run.finish();
  } else if (state === "asking" || state === "connecting") {
    run.cancel();
  } else if (state !== "finishing") {
    void start();
  }
});

page.keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!RUNNING.includes(state)) {
    useKey(page.key.value.trim() === "" ? undefined : page.key.value.trim());
    void start();
  }
});

page.copy.addEventListener("click", async () => {
  const label = [...page.copy.childNodes];
  const isCopied = await copy(transcript());
  page.copy.textContent = isCopied ? "Copied" : "Not allowed";
  page.copy.disabled = true;
  setTimeout(() => {
    page.copy.replaceChildren(...label);
    showContents();
  }, COPIED_SHOWN_MS);
});

page.clear.addEventListener("click", () => {
  page.finals.replaceChildren();
  if (!RUNNING.includes(state)) {
    resetClock();
    show("idle");
    hideMessage();
  }
  showContents();
  page.toggle.focus();
});

void showModel();
