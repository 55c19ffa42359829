/** One run: the microphone is sent to the server in one session, and its text is shown. */

import { AbortedError, Captions, connect, openMicrophone } from "../tutti/index.js";
import { clock } from "./clock.js";
import { page } from "./elements.js";
import { explain } from "./explain.js";
import { level } from "./level.js";
import { keepOpenLines, showGap, showLine } from "./lines.js";
import { hideMessage, sentence, showMessage, warn } from "./messages.js";
import { CONNECTION_TROUBLE, MICROPHONE_TROUBLES, RUNNING, fail, show, showTrouble, state } from "./status.js";

/** The length of a paragraph, in seconds of speech. Longer lines are hard to read. */
const MAX_UTTERANCE_S = 30;
/** How long the server may take to finish after Stop. */
const STOP_TIMEOUT_MS = 15_000;
/** How often a session without audio tells the server that it is still there. Servers wait for a minute by default. */
const KEEPALIVE_MS = 15_000;
/** The states of the microphone in which not even silence comes from it. */
const AUDIO_STOPS = ["suspended", "interrupted", "disconnected"];
/** A longer delay than this, in seconds, is shown in another colour. */
const SLOW_S = 2;

/** The present run: `cancel` ends it at once, `finish` ends it when all text is final. */
export let run;
/** Seconds of audio so far. A new session begins at this time, so that times never run backwards. */
let clockS = 0;
let apiKey;

/** The key for the next run; undefined: none. */
export function useKey(key) {
  apiKey = key;
}

/** The next run begins at zero. */
export function resetClock() {
  clockS = 0;
  showTimes(undefined);
}

export async function start() {
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
      await explain(error, signal, apiKey);
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

function showTimes(delayS) {
  page.elapsed.textContent = clock(clockS);
  page.delay.textContent = delayS === undefined ? "–" : `${delayS.toFixed(1)} s`;
  page.delay.classList.toggle("slow", delayS !== undefined && delayS > SLOW_S);
}
