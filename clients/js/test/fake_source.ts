/** An audio source of 8 kHz that a test plays. */

import type { AudioSource, AudioState, TuttiError } from "../src/index.js";

export class FakeSource implements AudioSource {
  readonly sampleRate = 8000;
  state: AudioState = "live";
  nStops = 0;
  /** What `flush` delivers; it does so when `onFlush` resolves. */
  rest: Int16Array | undefined;
  onFlush: Promise<void> = Promise.resolve();
  onChunk: ((samples: Int16Array) => void) | undefined;
  onLost: ((error: TuttiError) => void) | undefined;
  onState: ((state: AudioState) => void) | undefined;

  start(
    onChunk: (samples: Int16Array) => void,
    onLost?: (error: TuttiError) => void,
    onState?: (state: AudioState) => void,
  ): void {
    Object.assign(this, { onChunk, onLost, onState });
  }

  async flush(): Promise<void> {
    await this.onFlush;
    if (this.rest !== undefined) {
      this.onChunk?.(this.rest);
    }
  }

  stop(): void {
    this.nStops += 1;
    this.state = "stopped";
  }
}
