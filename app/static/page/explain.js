/** Says why a run has ended, and what the user can do. */

import { ConnectError, ConnectionLost, RequestError, SessionError, TuttiError } from "../tutti/index.js";
import { probe, streamUrl } from "../tutti/server.js";
import { within } from "../tutti/signal.js";
import { apiKey } from "./keys.js";
import { askForKey, showMessage } from "./messages.js";
import { forgetRoom } from "./share.js";
import { fail, show } from "./status.js";

/** The message for each error with which a server ends a session. */
const SESSION_ENDS = {
  draining: "The server is shutting down. Press Restart to continue on another one.",
  overloaded: "The server is full. Try again in a moment.",
  idle: "The server received no audio for too long and closed the connection.",
  too_fast: "The audio reached the server too fast. Press Restart to continue.",
  engine_failed: "The server has failed. The text above is kept.",
};

/** Shows why a run has ended, and what the user can do. */
export async function explain(error, signal) {
  if (error instanceof ConnectError && error.code === "connect_failed") {
    await explainRefusal(signal);
  } else if (error instanceof RequestError && isAboutKey(error.status)) {
    askForTheKey();
  } else if (error instanceof ConnectionLost) {
    show("lost");
    showMessage("The connection to the server was lost. The text above is kept.");
  } else if (error instanceof SessionError && isAboutRoom(error)) {
    forgetRoom();
    show("failed");
    showMessage(`The captions are not shared: ${error.message}. Press Start to go on without readers, or share them again.`);
  } else if (error instanceof SessionError) {
    show("lost");
    showMessage(SESSION_ENDS[error.code] ?? `The server ended the session: ${error.message}.`);
  } else if (error.code === "bad_api_key") {
    show("failed");
    askForKey("This is not an API key: it contains characters that are not allowed in a key.");
  } else {
    fail(error);
  }
  if (!(error instanceof TuttiError)) {
    console.error(error);
  }
}

/** Finds out with an HTTP request why the server refused: browsers do not give the reason for a WebSocket. */
async function explainRefusal(signal) {
  let status;
  try {
    status = await within(probe(streamUrl(location.origin), apiKey()), signal);
  } catch {
    show("idle");
    return;
  }
  if (status === 0) {
    show("failed");
    showMessage("The server cannot be reached. Check the connection and try again.");
  } else if (isAboutKey(status)) {
    askForTheKey();
  } else {
    show("failed");
    showMessage("The server opens no session. It may be full: try again in a moment.");
  }
}

function isAboutRoom({ code, message }) {
  return code.startsWith("room_") || code === "no_rooms" || message.startsWith("room:");
}

function isAboutKey(status) {
  return status === 401 || status === 403;
}

function askForTheKey() {
  show("failed");
  askForKey(apiKey() === undefined ? "This server needs an API key." : "The server does not accept this API key.");
}
