/** The events that the application has not read yet. */
import { UsageError } from "./errors.js";
/** The events of several minutes: only an application that has stopped reading reaches this limit. */
export const MAX_UNREAD_EVENTS = 4096;
/** Delivers events to the one loop that reads them. */
export class EventQueue {
    #onLeave;
    #unread = [];
    #isBeingRead = false;
    #isEnded = false;
    #error;
    #wake;
    /** @param onLeave called when the loop ends, for whatever reason. */
    constructor(onLeave) {
        this.#onLeave = onLeave;
    }
    get isFull() {
        return this.#unread.length >= MAX_UNREAD_EVENTS;
    }
    push(event) {
        this.#unread.push(event);
        this.#wake?.();
    }
    /** No event follows. After the events before, the loop ends, or throws this error. */
    end(error) {
        this.#isEnded = true;
        this.#error = error;
        this.#wake?.();
    }
    /** @throws UsageError if there is a loop already. */
    read() {
        if (this.#isBeingRead) {
            throw new UsageError("already_reading", "the events of a session can be read once");
        }
        this.#isBeingRead = true;
        return this.#read();
    }
    async *#read() {
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
                await new Promise((resolve) => {
                    this.#wake = resolve;
                });
            }
        }
        finally {
            this.#onLeave();
        }
    }
}
