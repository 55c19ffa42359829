/**
 * One run: the sound of a source is sent to the server and its text is shown. A run is one session, or several one after
 * another: when the user changes an option, the next session goes on where the one before ends, and no sound is lost.
 */

import { connect } from "../tutti/index.js";
import { page } from "./elements.js";
import { explain } from "./explain.js";
import { Feed } from "./feed.js";
import { kept } from "./keeper.js";
import { apiKey } from "./keys.js";
import { hideMessage, sentence, showMessage, warn } from "./messages.js";
import { sampleOptions, sessionOptions } from "./options.js";
import { Sample } from "./sample.js";
import { SessionText } from "./session_text.js";
import { settings } from "./settings.js";
import { noteRoom, roomOption } from "./share.js";
import { openSource } from "./sources.js";
import { CONNECTION_TROUBLE, MICROPHONE_TROUBLES, fail, isRunning, show, showTrouble, state } from "./status.js";
import { nowS, setNow, showDelay } from "./timeline.js";

/** How long the server may take to finish after Stop. */
const STOP_TIMEOUT_MS = 15_000;
/** How often a session without audio tells the server that it is still there. Servers wait for a minute by default. */
const KEEPALIVE_MS = 15_000;
/** The states of the microphone in which not even silence comes from it. */
const AUDIO_STOPS = ["suspended", "interrupted", "disconnected"];

/** The present run; undefined if there is none. */
let run;

/** Begins a run with the source of the settings. Call it from a click. */
export async function startLive() {
  await start(new Run());
}

/** Begins a run with the sample. Call it from a click. */
export async function startSample() {
  await start(new Run(new Sample()));
}

async function start(next) {
  hideMessage();
  run = next;
  await run.go();
}

/** Ends the run: at once while it begins, and otherwise when all text is final. */
export function stopLive() {
  if (state === "asking" || state === "connecting") {
    run.cancel();
  } else {
    void run.finish();
  }
}

export function togglePause() {
  run.pause(state === "live");
}

/** Applies changed options to a session that runs. */
export function applyOptions() {
  if (state === "live" || state === "paused") {
    run.renewIfChanged();
  }
}

class Run {
  /** What is played; undefined: the source of the settings is heard. */
  #sample;
  #controller = new AbortController();
  #microphone;
  #feed;
  #session;
  /** The options of the present session. */
  #options;
  #isRenewing = false;
  /** Whether the run ends as soon as the next session has the sound that waits for it. */
  #stopsSoon = false;
  /** Whether the session has no connection at present, or still sends what was kept meanwhile. */
  #isAway = false;
  #keepalive;

  constructor(sample) {
    this.#sample = sample;
  }

  cancel() {
    this.#controller.abort();
  }

  async go() {
    const { signal } = this.#controller;
    try {
      show("asking");
      this.#microphone = await this.#openSource(signal);
      await kept;
      this.#listen();
      show("connecting");
      do {
        await this.#openSession();
        if (state === "connecting") {
          show("live");
        }
        // Options may have changed while the session began.
        applyOptions();
        await this.#showEvents();
      } while (this.#isRenewing);
      show("done");
    } catch (error) {
      // What is aborted has errors of different classes: those of the client, and those of the browser.
      if (!signal.aborted) {
        await explain(error, signal);
      } else if (isRunning()) {
        show("idle");
      }
    } finally {
      this.#microphone?.stop();
      this.#sample?.close();
      this.#session?.close();
      clearInterval(this.#keepalive);
      showTrouble("connection", undefined);
      showTrouble("microphone", undefined);
      showDelay(undefined);
      page.level.style.transform = "scaleX(0)";
    }
  }

  /** Ends the run when all text is final. */
  async finish() {
    if (state !== "live" && state !== "paused") {
      return;
    }
    show("finishing");
    await this.#microphone.flush();
    this.#microphone.stop();
    if (this.#isRenewing) {
      this.#stopsSoon = true;
    } else {
      this.#session.stop();
    }
  }

  /** While the run is paused, nothing is sent and the time stands still. */
  pause(isPaused) {
    this.#feed.isPaused = isPaused;
    this.#sample?.pause(isPaused);
    if (isPaused) {
      this.#flush();
      showDelay(undefined);
      page.level.style.transform = "scaleX(0)";
    }
    show(isPaused ? "paused" : "live");
  }

  /** Without a connection, the old session first goes on: only the server knows how its last words end. */
  renewIfChanged() {
    if (!this.#isRenewing && !this.#isAway && JSON.stringify(this.#options) !== JSON.stringify(this.#optionsNow())) {
      this.#isRenewing = true;
      this.#feed.detach().stop();
    }
  }

  async #openSource(signal) {
    return this.#sample === undefined ? openSource(settings, signal) : this.#sample.open(signal, () => this.#onPlayed());
  }

  /** Ends the run with the sample: also one whose session is still to be opened. */
  #onPlayed() {
    this.#stopsSoon = true;
    void this.finish();
  }

  #listen() {
    const onAudio = (atS, level) => {
      setNow(atS);
      page.level.style.transform = `scaleX(${level})`;
    };
    this.#feed = new Feed(this.#microphone.sampleRate, nowS, onAudio);
    const onChunk = (samples) => {
      try {
        this.#feed.push(samples);
      } catch (error) {
        fail(error);
        this.cancel();
      }
    };
    const onLost = (error) => {
      showMessage(sentence(error));
      if (this.#session === undefined) {
        this.cancel();
      } else {
        void this.finish();
      }
    };
    const onState = (microphoneState) => {
      showTrouble("microphone", MICROPHONE_TROUBLES[microphoneState]);
      if (AUDIO_STOPS.includes(microphoneState)) {
        this.#flush();
      }
    };
    this.#microphone.start(onChunk, onLost, onState);
    this.#keepalive = setInterval(() => this.#keepOpen(), KEEPALIVE_MS);
  }

  async #openSession() {
    this.#options = this.#optionsNow();
    const fromS = this.#feed.sentS;
    const session = await connect(location.origin, {
      signal: this.#controller.signal,
      apiKey: apiKey(),
      stopTimeoutMs: STOP_TIMEOUT_MS,
      start: {
        audio: { encoding: "pcm_s16le", sample_rate: this.#microphone.sampleRate, channels: 1 },
        ...this.#options,
        ...(fromS > 0 ? { resume: { from_s: fromS } } : {}),
      },
    });
    session.started.warnings.forEach(warn);
    const { room } = session.started;
    noteRoom(room ?? null);
    this.#session = session;
    this.#isRenewing = false;
    this.#isAway = false;
    // With its token, the same room is asked for.
    this.#options = { ...this.#options, room: room && { name: room.name, token: room.token } };
    this.#feed.attach(session);
    setNow(this.#feed.sentS);
    if (this.#feed.isPaused) {
      // The session before was ending when the pause began.
      this.#flush();
    }
    if (this.#stopsSoon) {
      session.stop();
    }
  }

  async #showEvents() {
    const text = new SessionText();
    try {
      for await (const event of this.#session) {
        text.apply(event);
        this.#showNews(event, text);
      }
    } finally {
      text.end();
    }
  }

  #showNews(event, text) {
    if (event.type === "interim") {
      showDelay(nowS - event.end_s);
    } else if (event.type === "lag") {
      showDelay(event.behind_s);
    } else if (event.type === "reconnecting") {
      // The first attempt often succeeds within a moment. A message would come and go, and move the text.
      this.#isAway = true;
      const { status, message } = CONNECTION_TROUBLE;
      showTrouble("connection", event.attempt === 1 ? { status } : { status, message });
      console.info(`Reconnecting in ${event.retry_in_s} s: ${event.reason}`);
    } else if (event.type === "resumed") {
      void this.#catchUp();
      showTrouble("connection", undefined);
      if (event.gap !== null) {
        text.addGap(event.gap);
      }
    } else if (event.type === "warning" || event.type === "error") {
      warn(event);
    }
  }

  /** What was kept of an outage is sent no faster than the server allows, and the next session would wait for all of it. */
  async #catchUp() {
    try {
      await this.#session.writable();
      this.#isAway = false;
      applyOptions();
    } catch {
      // The session has ended, and its loop tells why.
    }
  }

  /** Makes final what was spoken: no more audio comes for a while. */
  #flush() {
    if (this.#session?.isOpen) {
      this.#session.flush();
    }
  }

  #optionsNow() {
    const room = roomOption();
    const options = this.#sample === undefined ? sessionOptions() : sampleOptions();
    return { ...options, ...(room === undefined ? {} : { room }) };
  }

  /** Keeps a session without audio open. */
  #keepOpen() {
    const comes = !this.#feed.isPaused && !AUDIO_STOPS.includes(this.#microphone.state);
    if (!comes && this.#session?.isOpen) {
      this.#session.keepalive();
    }
  }
}
