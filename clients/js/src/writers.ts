/** The callers that wait until less audio is unsent. */

import type { TuttiError } from "./errors.js";

/** A WebSocket has no event for an empty buffer, so it is checked, but only while a caller waits. */
const CHECK_MS = 20;

interface Writer {
  readonly resolve: () => void;
  readonly reject: (error: TuttiError) => void;
}

/** Lets callers wait until `isWritable` holds. */
export class Writers {
  readonly #isWritable: () => boolean;
  #waiting: Writer[] = [];
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(isWritable: () => boolean) {
    this.#isWritable = isWritable;
  }

  wait(): Promise<void> {
    if (this.#isWritable()) {
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#timer ??= setInterval(() => this.#isWritable() && this.#release((writer) => writer.resolve()), CHECK_MS);
    });
  }

  /** Rejects for all that wait. */
  end(error: TuttiError): void {
    this.#release((writer) => writer.reject(error));
  }

  #release(wake: (writer: Writer) => void): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#waiting.splice(0).forEach(wake);
  }
}
