/** Brings audio to the session of the moment. Audio that comes while there is none is kept, and sent when there is one. */

import { level } from "./level.js";

export class Feed {
  #sampleRate;
  #session;
  /** What waits for a session: seconds, as a rule, but minutes if the one before has lost its connection and is to end. */
  #early = [];
  #startS;
  #nSamples = 0;
  #onAudio;
  isPaused = false;

  /** `onAudio` is called after each chunk with the time in the transcript and the level from 0 to 1. */
  constructor(sampleRate, startS, onAudio) {
    this.#sampleRate = sampleRate;
    this.#startS = startS;
    this.#onAudio = onAudio;
  }

  /** How much was sent, as a time in the transcript. */
  get sentS() {
    return this.#startS + this.#nSamples / this.#sampleRate;
  }

  /** @throws UsageError if the session cannot take more. */
  push(samples) {
    if (this.isPaused) {
      return;
    }
    if (this.#session === undefined) {
      this.#early.push(samples);
    } else {
      this.#send(samples);
    }
    this.#onAudio(this.sentS, level(samples));
  }

  /** From now on audio goes to this session, beginning with what has waited for it, also in a pause: it came before. */
  attach(session) {
    this.#session = session;
    this.#early.splice(0).forEach((samples) => this.#send(samples));
  }

  /** From now on audio waits for the next session. Returns the one of before. */
  detach() {
    const session = this.#session;
    this.#session = undefined;
    return session;
  }

  #send(samples) {
    if (this.#session.isOpen) {
      this.#session.send(samples);
      this.#nSamples += samples.length;
    }
  }
}
