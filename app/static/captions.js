/**
 * The captions page: runs one session at a time from the microphone and shows what comes back. What the messages mean
 * is left to ./tutti/, the JavaScript client.
 */

import {
  AbortedError,
  Captions,
  ConnectError,
  ConnectionLost,
  SessionError,
  TuttiError,
  connect,
  openMicrophone,
} from "./tutti/index.js";

/** Enough for a paragraph; longer lines are hard to follow. */
const MAX_UTTERANCE_S = 30;
const STOP_TIMEOUT_MS = 15_000;
const PROBE_TIMEOUT_MS = 5_000;
const COPIED_SHOWN_MS = 2_000;
const SLOW_S = 2;
/** A reader who comes back this close to the end follows what is said again. */
const FOLLOW_PX = 64;
/** Heights are rounded: closer than this is the end. */
const END_PX = 2;
const INT16_MAX = 32767;
const LEVEL_FLOOR_DB = 50;

const element = (id) => document.getElementById(id);
const page = {
  status: element("status"),
  level: element("level"),
  transcript: element("transcript"),
  empty: element("empty"),
  finals: element("finals"),
  live: element("live"),
  latest: element("latest"),
  message: element("message"),
  keyForm: element("key-form"),
  key: element("key"),
  toggle: element("toggle"),
  toggleLabel: element("toggle-label"),
  language: element("language"),
  elapsed: element("elapsed"),
  delay: element("delay"),
  copy: element("copy"),
  clear: element("clear"),
};

/** What each state is called, and what the button does in it. */
const STATES = {
  idle: { status: "Ready", button: "Start" },
  asking: { status: "Waiting for the microphone…", button: "Cancel" },
  connecting: { status: "Connecting…", button: "Cancel" },
  live: { status: "Listening", button: "Stop" },
  finishing: { status: "Finishing…", button: "Finishing…" },
  done: { status: "Stopped", button: "Start" },
  failed: { status: "Stopped", button: "Start" },
  lost: { status: "Disconnected", button: "Restart" },
};
const RUNNING = ["asking", "connecting", "live", "finishing"];

let state = "idle";
/** The run in progress: `cancel` ends it at once, `finish` when everything is final. */
let run;
/** Seconds of audio so far; a new session goes on from here, so that times never run backwards. */
let clockS = 0;
let apiKey;
/** Whether the newest text is kept in view: until the reader scrolls up, however little. */
let isFollowing = true;
/** How far down the transcript was when it was last looked at. */
let scrolledPx = 0;

// Events from the page

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
    apiKey = page.key.value.trim() === "" ? undefined : page.key.value.trim();
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
    clockS = 0;
    showTimes(undefined);
    show("idle");
    hideMessage();
  }
  showContents();
  page.toggle.focus();
});

page.transcript.addEventListener("scroll", noteScrolling);

page.latest.addEventListener("click", () => {
  isFollowing = true;
  page.latest.hidden = true;
  follow();
});

window.addEventListener("resize", () => {
  for (const line of page.transcript.querySelectorAll(".line[style]")) {
    line.style.minHeight = "";
  }
});

// Text has come, or its room has changed: with the window, or with the controls, which grow when they have something to
// say. In a frame this comes behind what the reader did, and before it is drawn.
const sizes = new ResizeObserver(follow);
sizes.observe(page.transcript);
sizes.observe(page.transcript.firstElementChild);

// One run: microphone, session, captions

async function start() {
  const controller = new AbortController();
  const { signal } = controller;
  let microphone;
  let session;
  let awake;
  run = { cancel: () => controller.abort(), finish: () => {} };
  hideMessage();
  try {
    show("asking");
    microphone = await openMicrophone({ signal });
    // What is said while the connection opens is heard too; opening takes at most the client's timeout.
    const early = [];
    const startS = clockS;
    let nSamples = 0;
    const hear = (samples) => {
      if (session === undefined) {
        early.push(samples);
        return;
      }
      if (!session.isOpen) {
        return;
      }
      try {
        session.send(samples);
      } catch (error) {
        fail(error);
        controller.abort();
        return;
      }
      nSamples += samples.length;
      clockS = startS + nSamples / microphone.sampleRate;
      page.elapsed.textContent = clock(clockS);
      page.level.style.transform = `scaleX(${level(samples)})`;
    };
    microphone.start(hear, (error) => {
      showMessage(sentence(error));
      if (session === undefined) {
        run.cancel();
      } else {
        run.finish();
      }
    });
    show("connecting");
    session = await connect(location.origin, {
      signal,
      apiKey,
      stopTimeoutMs: STOP_TIMEOUT_MS,
      start: {
        audio: { encoding: "pcm_s16le", sample_rate: microphone.sampleRate, channels: 1 },
        language: page.language.value === "" ? null : page.language.value,
        endpointing: { max_utterance_s: MAX_UTTERANCE_S },
        ...(clockS > 0 ? { resume: { from_s: clockS } } : {}),
      },
    });
    session.started.warnings.forEach(warn);
    run.finish = () => finish(microphone, session);
    early.forEach(hear);
    show("live");
    awake = keepAwake();
    await showEvents(session);
    show("done");
  } catch (error) {
    if (error instanceof AbortedError) {
      if (RUNNING.includes(state)) {
        show("idle");
      }
    } else {
      await explain(error, signal);
    }
  } finally {
    microphone?.stop();
    session?.close();
    void awake?.then((lock) => lock?.release());
    keepOpenLines();
    showTimes(undefined);
    page.level.style.transform = "scaleX(0)";
  }
}

async function finish(microphone, session) {
  if (state !== "live") {
    return;
  }
  show("finishing");
  await microphone.flush();
  microphone.stop();
  session.stop();
}

async function showEvents(session) {
  const captions = new Captions();
  for await (const event of session) {
    const line = captions.apply(event);
    if (line !== undefined) {
      showLine(line);
    }
    if (event.type === "interim") {
      showTimes(Math.max(0, clockS - event.end_s));
    } else if (event.type === "lag") {
      showTimes(event.behind_s);
    } else if (event.type === "warning" || event.type === "error") {
      warn(event);
    }
  }
}

/** Keeps the screen on while captions run, where the browser can. */
async function keepAwake() {
  try {
    return await navigator.wakeLock?.request("screen");
  } catch (error) {
    console.info("The screen may go dark:", error);
    return undefined;
  }
}

function level(samples) {
  let peak = 0;
  for (const sample of samples) {
    peak = Math.max(peak, Math.abs(sample));
  }
  const db = 20 * Math.log10(Math.max(1, peak) / INT16_MAX);
  return Math.max(0, Math.min(1, 1 + db / LEVEL_FLOOR_DB));
}

// Lines

/** Shows a line of `Captions`; one that has ended moves from the live lines to the final ones. */
function showLine(line) {
  const isFinal = "end_s" in line;
  let node = [...page.live.children].find((child) => child.dataset.utterance === String(line.utterance));
  const isBlank = isFinal ? line.text === "" : line.segments + line.stable + line.tail === "";
  if (isFinal) {
    if (!isBlank) {
      // A new node, so that screen readers read it.
      const final = newLine(line);
      final.querySelector(".solid").textContent = line.text;
      if (node !== undefined && node.nextElementSibling !== null) {
        // Shorter than it was expected to be: the line below stays where it is.
        final.style.minHeight = node.style.minHeight;
      }
      page.finals.append(final);
    }
    node?.remove();
  } else if (node !== undefined || !isBlank) {
    if (node === undefined) {
      node = newLine(line);
      page.live.append(node);
    }
    node.querySelector(".solid").textContent = line.segments + line.stable;
    node.querySelector(".tail").textContent = line.tail;
    // A tail that gets shorter gives no room back, so nothing jumps.
    node.style.minHeight = `${node.getBoundingClientRect().height}px`;
  }
  showContents();
}

function newLine(line) {
  const node = document.createElement("p");
  node.className = "line";
  node.dataset.utterance = line.utterance;
  const time = document.createElement("time");
  time.textContent = clock(line.start_s);
  time.dateTime = `PT${line.start_s.toFixed(2)}S`;
  const text = document.createElement("span");
  text.className = "text";
  const solid = document.createElement("span");
  solid.className = "solid";
  const tail = document.createElement("span");
  tail.className = "tail";
  text.append(solid, tail);
  node.append(time, text);
  return node;
}

/** What was stable when a session broke off stays; what might still have changed goes. */
function keepOpenLines() {
  for (const node of Array.from(page.live.children)) {
    node.querySelector(".tail").remove();
    node.style.minHeight = "";
    if (node.textContent !== node.querySelector("time").textContent) {
      node.querySelector(".text").classList.add("cut");
      page.finals.append(node);
    }
  }
  page.live.replaceChildren();
  showContents();
}

function transcript() {
  const lines = [...page.finals.children].map(
    (node) => `[${node.querySelector("time").textContent}] ${node.querySelector(".solid").textContent}`,
  );
  return `${lines.join("\n")}\n`;
}

async function copy(text) {
  try {
    // Absent on pages that are not secure.
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}

// What the page says

function show(next) {
  state = next;
  const { status, button } = STATES[next];
  const isRunning = RUNNING.includes(next);
  document.body.dataset.state = next;
  page.status.textContent = status;
  page.toggleLabel.textContent = button;
  // Not `disabled`, which would take the keyboard's focus away.
  page.toggle.setAttribute("aria-disabled", String(next === "finishing"));
  page.language.disabled = isRunning;
  page.keyForm.querySelector("button").disabled = isRunning;
  showContents();
}

function showContents() {
  const isEmpty = page.finals.childElementCount === 0;
  page.empty.hidden = !isEmpty || page.live.childElementCount > 0;
  page.copy.disabled = isEmpty;
  page.clear.disabled = isEmpty;
}

function showTimes(delayS) {
  page.elapsed.textContent = clock(clockS);
  page.delay.textContent = delayS === undefined ? "–" : `${delayS.toFixed(1)} s`;
  page.delay.classList.toggle("slow", delayS !== undefined && delayS > SLOW_S);
}

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
  if (isFollowing) {
    page.transcript.scrollTop = page.transcript.scrollHeight;
    scrolledPx = page.transcript.scrollTop;
  }
}

function showMessage(text) {
  page.message.textContent = text;
  page.message.hidden = false;
}

function hideMessage() {
  page.message.hidden = true;
  page.keyForm.hidden = true;
}

function askForKey(text) {
  showMessage(text);
  page.keyForm.hidden = false;
  page.key.focus();
}

function warn({ code, message }) {
  console.warn(`${code}: ${message}`);
}

function fail(error) {
  show("failed");
  showMessage(sentence(error));
}

const SESSION_ENDS = {
  draining: "The server is going down. Restart to go on with another one.",
  overloaded: "The server is full. Try again in a moment.",
  idle: "The server heard nothing for too long and hung up.",
  too_fast: "The sound reached the server faster than time. Restart to go on.",
  engine_failed: "The server failed. What it heard before is above.",
};

/** Says in plain words why a run has ended, and what to do about it. */
async function explain(error, signal) {
  if (error instanceof ConnectError && error.code === "connect_failed") {
    await explainRefusal(signal);
  } else if (error instanceof ConnectionLost) {
    show("lost");
    showMessage("The connection to the server was lost. What is above is kept.");
  } else if (error instanceof SessionError) {
    show("lost");
    showMessage(SESSION_ENDS[error.code] ?? `The server ended the session: ${error.message}.`);
  } else if (error.code === "bad_api_key") {
    show("failed");
    askForKey("This is not an API key: it has characters that no key has.");
  } else {
    fail(error);
  }
  if (!(error instanceof TuttiError)) {
    console.error(error);
  }
}

/** A browser does not say why a WebSocket was refused, so an ordinary request asks. */
async function explainRefusal(signal) {
  let status;
  try {
    const headers = apiKey === undefined ? {} : { Authorization: `Bearer ${apiKey}` };
    const response = await fetch("/v1/models", {
      headers,
      signal: AbortSignal.any([signal, AbortSignal.timeout(PROBE_TIMEOUT_MS)]),
    });
    status = response.status;
  } catch (error) {
    if (signal.aborted) {
      show("idle");
      return;
    }
    console.info("The server does not answer:", error);
  }
  show("failed");
  if (status === undefined) {
    showMessage("The server cannot be reached. Check the connection and try again.");
  } else if (status === 401 || status === 403) {
    askForKey(apiKey === undefined ? "This server needs an API key." : "The server does not accept this API key.");
  } else {
    askForKey("The server refused the connection. It may be full, in which case try again in a moment, or need an API key.");
  }
}

function sentence(error) {
  const text = error instanceof Error ? error.message : String(error);
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function clock(seconds) {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60];
  const hours = Math.floor(whole / 3600);
  return (hours > 0 ? [hours, ...parts] : parts)
    .map((part, index) => (index === 0 ? String(part) : String(part).padStart(2, "0")))
    .join(":");
}
