/**
 * Runs on the audio thread. It collects blocks of 128 samples into chunks of about 100 ms, as 16-bit PCM at the sample
 * rate of the audio context, and posts each chunk together with its memory. When it receives "flush", it posts the rest
 * and then an empty chunk. It imports nothing, so that its address alone is enough to load it.
 */

// TypeScript's DOM library does not declare the globals of audio worklets.
declare const sampleRate: number;
declare function registerProcessor(name: string, processor: new () => AudioWorkletProcessor): void;
declare abstract class AudioWorkletProcessor {
  readonly port: MessagePort;
  abstract process(inputs: Float32Array[][]): boolean;
}

/** The length of a chunk, in seconds. */
const CHUNK_S = 0.1;
const INT16_MAX = 32767;

class PcmChunks extends AudioWorkletProcessor {
  readonly #chunkSamples = Math.round(sampleRate * CHUNK_S);
  #chunk = new Int16Array(this.#chunkSamples);
  #filled = 0;

  constructor() {
    super();
    this.port.onmessage = () => {
      this.#post();
      this.port.postMessage(new Int16Array(0));
    };
  }

  /** Reads the first input, which is mixed to one channel. An input that is not connected has no channel. */
  override process(inputs: Float32Array[][]): boolean {
    for (const sample of inputs[0]?.[0] ?? []) {
      this.#chunk[this.#filled++] = Math.round(Math.max(-1, Math.min(1, sample)) * INT16_MAX);
      if (this.#filled === this.#chunkSamples) {
        this.#post();
      }
    }
    return true;
  }

  #post(): void {
    if (this.#filled === 0) {
      return;
    }
    const chunk = this.#filled === this.#chunkSamples ? this.#chunk : this.#chunk.slice(0, this.#filled);
    this.port.postMessage(chunk, [chunk.buffer]);
    this.#chunk = new Int16Array(this.#chunkSamples);
    this.#filled = 0;
  }
}

registerProcessor("tutti-pcm-chunks", PcmChunks);

// Makes this file a module, so that its names are not global.
export {};
