/** The state of the page: what the status and the buttons say, and what is wrong at present. */

import { page } from "./elements.js";
import { showContents } from "./lines.js";
import { sentence, showMessage } from "./messages.js";

/** For each state, the text of the status and of the button. */
const STATES = {
  idle: { status: "Ready", button: "Start" },
  asking: { status: "Waiting for the microphone…", button: "Cancel" },
  connecting: { status: "Connecting…", button: "Cancel" },
  live: { status: "Listening", button: "Stop" },
  paused: { status: "Paused", button: "Stop" },
  finishing: { status: "Finishing…", button: "Finishing…" },
  file: { status: "Transcribing", button: "Stop" },
  done: { status: "Stopped", button: "Start" },
  failed: { status: "Stopped", button: "Start" },
  lost: { status: "Disconnected", button: "Restart" },
};
const RUNNING = ["asking", "connecting", "live", "paused", "finishing", "file"];
const HAS_SESSION = ["live", "paused", "finishing"];

/** What is shown while the session has no connection. It makes another one by itself. */
export const CONNECTION_TROUBLE = {
  status: "Reconnecting…",
  message: "The connection to the server is lost. Go on speaking: the captions continue when it is back.",
};
/** What is shown while the session runs and no sound comes from the microphone, for each such state of it. */
export const MICROPHONE_TROUBLES = {
  muted: {
    status: "Microphone muted",
    message: "The microphone is muted by a switch, by the system or by another program.",
  },
  suspended: {
    status: "Microphone paused",
    message: "The browser has paused the microphone. Tap or click anywhere on this page to continue.",
  },
  interrupted: {
    status: "Microphone in use",
    message: "The system uses the microphone for something else, such as a phone call. The captions continue after it.",
  },
  disconnected: {
    status: "No microphone",
    message: "The microphone is gone. Plug it in again, or another one, and the captions continue.",
  },
};

export let state = "idle";
/** What is wrong at present in each part; undefined where nothing is. */
const troubles = { connection: undefined, microphone: undefined };

export function isRunning() {
  return RUNNING.includes(state);
}

export function show(next) {
  state = next;
  document.body.dataset.state = next;
  showStatus();
  page.toggleLabel.textContent = STATES[next].button;
  // `disabled` would take the keyboard focus away from the button.
  page.toggle.setAttribute("aria-disabled", String(next === "finishing"));
  const canPause = next === "live" || next === "paused";
  if (!canPause && document.activeElement === page.pause) {
    page.toggle.focus();
  }
  page.pause.hidden = !canPause;
  page.pause.setAttribute("aria-pressed", String(next === "paused"));
  page.source.disabled = isRunning();
  page.playSample.disabled = isRunning();
  page.language.disabled = isRunning() && !canPause;
  page.keyForm.querySelector("button").disabled = isRunning();
  showContents();
}

function showStatus() {
  const trouble = HAS_SESSION.includes(state) ? (troubles.connection ?? troubles.microphone) : undefined;
  page.status.textContent = (trouble ?? STATES[state]).status;
  document.body.toggleAttribute("data-trouble", trouble !== undefined);
}

/** Shows a trouble of a part, or that it has none any more. `message` is left out for one that may end at once. */
export function showTrouble(part, trouble) {
  const before = troubles[part];
  if (trouble?.message !== undefined) {
    showMessage(trouble.message);
  } else if (before !== undefined && page.message.textContent === before.message) {
    page.message.hidden = true;
  }
  troubles[part] = trouble;
  showStatus();
}

export function fail(error) {
  show("failed");
  showMessage(sentence(error));
}
