import { UsageError } from "./errors.js";
export const MAX_UNREAD_EVENTS = 4096;
export class EventQueue {
    #onLeave;
    #unread = [];
    #isBeingRead = false;
    #isEnded = false;
    #error;
    #wake;
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
    end(error) {
        this.#isEnded = true;
        this.#error = error;
        this.#wake?.();
    }
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
