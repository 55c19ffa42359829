/** The sample: a recording of a person, which the page plays and listens to, so that no microphone is needed. */

import { openMicrophone } from "../tutti/index.js";

const ADDRESS = "/page/sample.flac";

/** A source for one run. */
export class Sample {
  // Browsers play sound only after a click, in which a sample is made.
  #context = new AudioContext();
  #player;

  /** Opens it as `openMicrophone` does, and plays it. `onEnd` is called when all of it was played. */
  async open(signal, onEnd) {
    const response = await fetch(ADDRESS, { signal });
    if (!response.ok) {
      throw new Error(`${ADDRESS}: expected status 200, got ${response.status}`);
    }
    const buffer = await this.#context.decodeAudioData(await response.arrayBuffer());
    const output = this.#context.createMediaStreamDestination();
    const microphone = await openMicrophone({ signal, keepScreenOn: true, openStream: async () => output.stream });
    this.#player = new AudioBufferSourceNode(this.#context, { buffer });
    this.#player.connect(output);
    this.#player.connect(this.#context.destination);
    this.#player.addEventListener("ended", onEnd);
    this.#player.start();
    return microphone;
  }

  pause(isPaused) {
    void (isPaused ? this.#context.suspend() : this.#context.resume());
  }

  close() {
    void this.#context.close();
  }
}
