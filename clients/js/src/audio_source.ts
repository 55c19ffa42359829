/** Where a session gets its audio from: a browser's microphone is one source, a recorder of React Native another. */

import type { TuttiError } from "./errors.js";

/**
 * Whether audio comes from a source, and if not, why:
 *
 * - `live`: audio comes.
 * - `muted`: a switch, the system or another program has muted the device; the audio is silence.
 * - `suspended`: the browser has suspended the audio of the page. Some resume it only when the user touches the page.
 * - `interrupted`: the system needs the microphone for something else, such as a phone call.
 * - `disconnected`: the device is gone. Another one is used as soon as there is one.
 * - `stopped`: `stop` was called, or the permission was withdrawn.
 *
 * All but `stopped` return to `live` by themselves when the platform allows it.
 */
export type AudioState = "live" | "muted" | "suspended" | "interrupted" | "disconnected" | "stopped";

/** A source of mono 16-bit PCM. */
export interface AudioSource {
  /** Samples in a second: the value for `start.audio.sample_rate`. It stays the same. */
  readonly sampleRate: number;
  readonly state: AudioState;
  /**
   * Begins to record. `onChunk` gets the audio, in chunks of 20 to 500 ms. `onState` gets each new value of `state`.
   * `onLost` is called once if the source has stopped and cannot begin again.
   */
  start(
    onChunk: (samples: Int16Array) => void,
    onLost?: (error: TuttiError) => void,
    onState?: (state: AudioState) => void,
  ): void;
  /** Delivers audio that has been recorded already. It is called before `stop`. */
  flush?(): Promise<void>;
  /** Releases the device. A second call has no effect. */
  stop(): void;
}
