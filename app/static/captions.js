/**
 * The captions page. It sends the microphone to the server, one session at a time, and shows the text that comes back.
 * The JavaScript client in ./tutti/ handles the session and its messages.
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

/** The length of a paragraph, in seconds of speech. Longer lines are hard to read. */
const MAX_UTTERANCE_S = 30;
/** How long the server may take to finish after Stop. */
const STOP_TIMEOUT_MS = 15_000;
/** How often a session without audio tells the server that it is still there. Servers wait for a minute by default. */
const KEEPALIVE_MS = 15_000;
/** The states of the microphone in which not even silence comes from it. */
const AUDIO_STOPS = ["suspended", "interrupted", "disconnected"];
/** How long the request that finds out why a connection was refused may take. */
const PROBE_TIMEOUT_MS = 5_000;
/** The language that is chosen at first, if the model knows it. */
const FIRST_LANGUAGE = "en";
/** How long the button shows that the transcript was copied. */
const COPIED_SHOWN_MS = 2_000;
/** A longer delay than this, in seconds, is shown in another colour. */
const SLOW_S = 2;
/** When the reader scrolls down to within this distance of the end, the page follows the newest text again. */
const FOLLOW_PX = 64;
/** Browsers round heights: a position closer than this is the end. */
const END_PX = 2;
const INT16_MAX = 32767;
/** The level bar is empty at this many decibels below full scale. */
const LEVEL_FLOOR_DB = 50;

const element = (id) => document.getElementById(id);
const page = {
  status: element("status"),
  level: element("level"),
  transcript: element("transcript"),
  model: element("model"),
  noPeople: element("no-people"),
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

/** For each state, the text of the status and of the button. */
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
const HAS_SESSION = ["live", "finishing"];

/** What is shown while the session has no connection. It makes another one by itself. */
const CONNECTION_TROUBLE = {
  status: "Reconnecting…",
  message: "The connection to the server is lost. Go on speaking: the captions continue when it is back.",
};
/** What is shown while the session runs and no sound comes from the microphone, for each such state of it. */
const MICROPHONE_TROUBLES = {
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

let state = "idle";
/** What is wrong at present in each part; undefined where nothing is. */
const troubles = { connection: undefined, microphone: undefined };
/** The present run: `cancel` ends it at once, `finish` ends it when all text is final. */
let run;
/** Seconds of audio so far. A new session begins at this time, so that times never run backwards. */
let clockS = 0;
let apiKey;
/** Whether the page keeps the newest text in view. It stops as soon as the reader scrolls up. */
let isFollowing = true;
/** The last known scroll position of the transcript. */
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

// Called when there is new text, or when the space for it changes with the window or with the controls, which grow to show
// a message. In each frame the browser calls this after the reader's scrolling and before it draws.
const sizes = new ResizeObserver(follow);
sizes.observe(page.transcript);
sizes.observe(page.transcript.firstElementChild);

// The model of the server

void showModel();

/** Shows which model listens and what it can hear, and offers its languages. */
async function showModel() {
  let model;
  try {
    const response = await fetch("/page/model", { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
    if (!response.ok) {
      throw new Error(`GET /page/model was answered with status ${response.status}`);
    }
    model = await response.json();
  } catch (error) {
    page.model.textContent = "The model is not known";
    console.warn("The page cannot show the model and its languages:", error);
    return;
  }
  page.model.textContent = `${model.name} · ${hearing(model)}`;
  page.model.title = page.model.textContent;
  page.noPeople.hidden = model.understands_people;
  const options = model.languages.map(({ code, name }) => new Option(name, code));
  options.sort((a, b) => a.label.localeCompare(b.label));
  if (options.length > 1) {
    options.unshift(new Option("Detect", ""));
  }
  page.language.replaceChildren(...options);
  page.language.value = model.languages.some(({ code }) => code === FIRST_LANGUAGE) ? FIRST_LANGUAGE : options[0].value;
}

/** What a model can hear, in a few words. */
function hearing({ understands_people: understandsPeople, languages }) {
  if (!understandsPeople) {
    return "synthetic voices only, hardly people";
  }
  return languages.length === 1 ? `${languages[0].name} only` : `${languages.length} languages`;
}

// One run: microphone, session, captions

async function start() {
  const controller = new AbortController();
  const { signal } = controller;
  let microphone;
  let session;
  let waiting;
  run = { cancel: () => controller.abort(), finish: () => {} };
  hideMessage();
  try {
    show("asking");
    microphone = await openMicrophone({ signal, keepScreenOn: true });
    // Audio from before the session is open is kept and sent later. Opening takes at most the timeout of the client.
    const early = [];
    const startS = clockS;
    let nSamples = 0;
    const sendAudio = (samples) => {
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
    const onLost = (error) => {
      showMessage(sentence(error));
      if (session === undefined) {
        run.cancel();
      } else {
        run.finish();
      }
    };
    const onState = (microphoneState) => {
      clearInterval(waiting);
      showTrouble("microphone", MICROPHONE_TROUBLES[microphoneState]);
      if (AUDIO_STOPS.includes(microphoneState)) {
        waiting = waitForAudio(() => session);
      }
    };
    microphone.start(sendAudio, onLost, onState);
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
    early.forEach(sendAudio);
    show("live");
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
    clearInterval(waiting);
    showTrouble("connection", undefined);
    showTrouble("microphone", undefined);
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
    } else if (event.type === "reconnecting") {
      // The first attempt often succeeds within a moment. A message would come and go, and move the text.
      const { status, message } = CONNECTION_TROUBLE;
      showTrouble("connection", event.attempt === 1 ? { status } : { status, message });
      console.info(`Reconnecting in ${event.retry_in_s} s: ${event.reason}`);
    } else if (event.type === "resumed") {
      showTrouble("connection", undefined);
      if (event.gap !== null) {
        showGap(event.gap);
      }
    } else if (event.type === "warning" || event.type === "error") {
      warn(event);
    }
  }
}

/** While no audio comes: makes what was spoken final, and keeps the session open. Returns the timer, for its end. */
function waitForAudio(currentSession) {
  const session = currentSession();
  if (session?.isOpen) {
    session.flush();
  }
  return setInterval(() => {
    const open = currentSession();
    if (open?.isOpen) {
      open.keepalive();
    }
  }, KEEPALIVE_MS);
}

/** The loudness of a chunk, from 0 to 1 on a logarithmic scale. */
function level(samples) {
  let peak = 0;
  for (const sample of samples) {
    peak = Math.max(peak, Math.abs(sample));
  }
  const db = 20 * Math.log10(Math.max(1, peak) / INT16_MAX);
  return Math.max(0, Math.min(1, 1 + db / LEVEL_FLOOR_DB));
}

// Lines

/** Shows a line of `Captions`. A line that has ended moves from the live lines to the final lines. */
function showLine(line) {
  const isFinal = "end_s" in line;
  let node = [...page.live.children].find((child) => child.dataset.utterance === String(line.utterance));
  const isBlank = isFinal ? line.text === "" : line.segments + line.stable + line.tail === "";
  if (isFinal) {
    if (!isBlank) {
      // A new node, so that screen readers read it aloud.
      const final = newLine(line);
      final.querySelector(".solid").textContent = line.text;
      if (node !== undefined && node.nextElementSibling !== null) {
        // The final text may be shorter. The line below it must not move.
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
    // A line never gets lower, even when its tail gets shorter. Otherwise the lines below it would jump.
    node.style.minHeight = `${node.getBoundingClientRect().height}px`;
  }
  showContents();
}

/** Adds a line in the place of audio that was lost because the connection was away for too long. */
function showGap([fromS, untilS]) {
  const node = newLine({ utterance: "gap", start_s: fromS });
  node.classList.add("gap");
  node.querySelector(".solid").textContent = `(The audio until ${clock(untilS)} is lost.)`;
  page.finals.append(node);
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

/** Keeps the stable text of open lines when a session has ended, and removes text that might still have changed. */
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
    // `navigator.clipboard` does not exist on pages that are not secure.
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

// Texts of the page

function show(next) {
  state = next;
  const { button } = STATES[next];
  const isRunning = RUNNING.includes(next);
  document.body.dataset.state = next;
  showStatus();
  page.toggleLabel.textContent = button;
  // `disabled` would take the keyboard focus away from the button.
  page.toggle.setAttribute("aria-disabled", String(next === "finishing"));
  page.language.disabled = isRunning;
  page.keyForm.querySelector("button").disabled = isRunning;
  showContents();
}

function showStatus() {
  const trouble = HAS_SESSION.includes(state) ? (troubles.connection ?? troubles.microphone) : undefined;
  page.status.textContent = (trouble ?? STATES[state]).status;
  document.body.toggleAttribute("data-trouble", trouble !== undefined);
}

/** Shows a trouble of a part, or that it has none any more. `message` is left out for one that may end at once. */
function showTrouble(part, trouble) {
  const before = troubles[part];
  if (trouble?.message !== undefined) {
    showMessage(trouble.message);
  } else if (before !== undefined && page.message.textContent === before.message) {
    page.message.hidden = true;
  }
  troubles[part] = trouble;
  showStatus();
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
  if (isFollowing && page.empty.hidden) {
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

/** The message for each error with which a server ends a session. */
const SESSION_ENDS = {
  draining: "The server is shutting down. Press Restart to continue on another one.",
  overloaded: "The server is full. Try again in a moment.",
  idle: "The server received no audio for too long and closed the connection.",
  too_fast: "The audio reached the server too fast. Press Restart to continue.",
  engine_failed: "The server has failed. The text above is kept.",
};

/** Shows why a run has ended, and what the user can do. */
async function explain(error, signal) {
  if (error instanceof ConnectError && error.code === "connect_failed") {
    await explainRefusal(signal);
  } else if (error instanceof ConnectionLost) {
    show("lost");
    showMessage("The connection to the server was lost. The text above is kept.");
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
    askForKey("The server refused the connection. If it is full, try again in a moment. It may also need an API key.");
  }
}

/** The message of an error as a sentence. */
function sentence(error) {
  const text = error instanceof Error ? error.message : String(error);
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** A time as `m:ss` or `h:mm:ss`. */
function clock(seconds) {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60];
  const hours = Math.floor(whole / 3600);
  return (hours > 0 ? [hours, ...parts] : parts)
    .map((part, index) => (index === 0 ? String(part) : String(part).padStart(2, "0")))
    .join(":");
}
