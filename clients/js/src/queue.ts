/** What has come and was not read yet: the events of a session, or the pieces of an answer. */

import { type TuttiError, UsageError } from "./errors.js";

/** Delivers items to the one loop that reads them. */
export class Queue<Item> {
  readonly #onLeave: () => void;
  readonly #unread: Item[] = [];
  #isBeingRead = false;
  #isEnded = false;
  #error: TuttiError | undefined;
  #wake: (() => void) | undefined;

  /** @param onLeave called when the loop ends, for whatever reason. */
  constructor(onLeave: () => void) {
    this.#onLeave = onLeave;
  }

  get nUnread(): number {
    return this.#unread.length;
  }

  push(item: Item): void {
    this.#unread.push(item);
    this.#wake?.();
  }

  /** No item follows. After the items before, the loop ends, or throws this error. */
  end(error?: TuttiError): void {
    this.#isEnded = true;
    this.#error = error;
    this.#wake?.();
  }

  /** @throws UsageError if there is a loop already. */
  read(): AsyncGenerator<Item, void, undefined> {
    if (this.#isBeingRead) {
      throw new UsageError("already_reading", "the events of a session can be read once");
    }
    this.#isBeingRead = true;
    return this.#read();
  }

  async *#read(): AsyncGenerator<Item, void, undefined> {
    try {
      for (;;) {
        yield* this.#unread.splice(0);
        if (this.#unread.length > 0) {
          continue;
        }
        if (this.#error !== undefined) {
          throw this.#error;
        }
        if (this.#isEnded) {
          return;
        }
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } finally {
      this.#onLeave();
    }
  }
}
