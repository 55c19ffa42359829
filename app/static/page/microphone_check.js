/** The choice of a microphone, with a meter that shows how loud it is before anything is sent. */

import { openMicrophone } from "../tutti/index.js";
import { page } from "./elements.js";
import { level } from "./level.js";
import { sentence } from "./messages.js";
import { settings } from "./settings.js";
import { microphones } from "./sources.js";
import { isRunning } from "./status.js";

const HINT = page.checkText.textContent;
/** Speech from the usual distance is louder than this share of the meter. */
const LOUD = 0.45;

let controller;

page.check.addEventListener("click", () => {
  if (controller === undefined) {
    void check();
  } else {
    endCheck();
  }
});

/** Lists the microphones. */
export async function fillMicrophones() {
  const found = await microphones();
  const options = found
    .filter(({ deviceId }) => deviceId !== "default")
    .map(({ deviceId, label }, index) => new Option(label === "" ? `Microphone ${index + 1}` : label, deviceId));
  page.microphone.replaceChildren(new Option("The system's choice", ""), ...options);
  const isThere = options.some(({ value }) => value === settings.microphone);
  if (!isThere && settings.microphone !== "") {
    page.microphone.append(new Option("The chosen one is not there", settings.microphone));
  }
  page.microphone.value = settings.microphone;
  page.microphone.disabled = isRunning();
  page.check.disabled = isRunning();
}

/** Releases the microphone, if it is being checked. */
export function endCheck() {
  controller?.abort();
}

async function check() {
  controller = new AbortController();
  const { signal } = controller;
  page.check.setAttribute("aria-pressed", "true");
  page.check.textContent = "Stop checking";
  page.checkText.textContent = "Say something.";
  let microphone;
  try {
    const constraints = settings.microphone === "" ? {} : { deviceId: { ideal: settings.microphone } };
    microphone = await openMicrophone({ signal, constraints });
    // The browser tells the names of the microphones only now.
    await fillMicrophones();
    signal.throwIfAborted();
    await new Promise((resolve, reject) => {
      signal.addEventListener("abort", resolve);
      microphone.start(showLevel, reject);
    });
    page.checkText.textContent = HINT;
  } catch (error) {
    page.checkText.textContent = signal.aborted ? HINT : sentence(error);
  } finally {
    microphone?.stop();
    controller = undefined;
    page.check.setAttribute("aria-pressed", "false");
    page.check.textContent = "Check";
    page.checkLevel.style.transform = "scaleX(0)";
  }
}

function showLevel(samples) {
  const now = level(samples);
  page.checkLevel.style.transform = `scaleX(${now})`;
  if (now > LOUD) {
    page.checkText.textContent = "This microphone hears something.";
  }
}
