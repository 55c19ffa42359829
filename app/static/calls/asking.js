/** Does what needs the server or a file: shows that it lasts, lets the user cancel it, and says why it did not work. */

import { onKey } from "../page/keys.js";
import { askForKey, hideMessage, showMessage } from "../page/messages.js";
import { clock } from "../tutti/clock.js";
import { AbortedError } from "../tutti/errors.js";
import { page } from "./elements.js";
import { notice } from "./messages.js";
import { BadRecord } from "./record.js";
import { Refused } from "./server.js";

/** How often the time of a long work is shown. */
const TICK_MS = 1_000;

/** What was asked of the server last, for a second attempt with an API key; and what stops it. */
let again = () => {};
let controller;
let ticking;

page.cancel.addEventListener("click", () => controller?.abort());
onKey(() => again());

export function isAsking() {
  return controller !== undefined;
}

/** Does what needs the server. `work` gets a signal that fires when the user cancels. */
export async function ask(name, work) {
  if (isAsking()) {
    return;
  }
  again = () => void ask(name, work);
  controller = new AbortController();
  hideMessage();
  page.open.dataset.busy = "";
  page.progress.hidden = false;
  page.progressName.textContent = name;
  page.progressText.textContent = "Asking the server…";
  page.progressBar.removeAttribute("value");
  try {
    await tryTo(name, () => work(controller.signal));
  } finally {
    controller = undefined;
    clearInterval(ticking);
    ticking = undefined;
    page.progress.hidden = true;
    delete page.open.dataset.busy;
  }
}

/** Shows how much was sent; then, for how long the server has been at work: it tells nothing until it has finished. */
export function showUpload(share) {
  if (share < 1) {
    page.progressBar.value = share;
    page.progressText.textContent = `Uploading, ${Math.floor(100 * share)} %`;
  } else if (ticking === undefined) {
    const beganMs = performance.now();
    const tick = () => {
      page.progressText.textContent = `The server makes the record: ${clock((performance.now() - beganMs) / 1000)}`;
    };
    page.progressBar.removeAttribute("value");
    tick();
    ticking = setInterval(tick, TICK_MS);
  }
}

/** Says why something did not work. What the page did wrong itself goes on as an error. */
export async function tryTo(name, work) {
  try {
    await work();
  } catch (error) {
    if (error instanceof Refused && error.isAboutKey) {
      askForKey(error.message);
    } else if (error instanceof BadRecord || error instanceof Refused) {
      say(`${name}: ${error.message}`);
    } else if (error instanceof DOMException && error.name !== "AbortError") {
      say(`${name} cannot be read: ${error.message}`);
    } else if (!(error instanceof AbortedError || error.name === "AbortError")) {
      throw error;
    }
  }
}

/** Says it where the user looks: above the record that is shown, or below the buttons that open one. */
export function say(text) {
  if (page.record.hidden) {
    showMessage(text);
  } else {
    notice(text);
  }
}
