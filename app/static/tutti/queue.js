import { UsageError } from "./errors.js";
export class Queue {
    #onLeave;
    #unread = [];
    #isBeingRead = false;
    #isEnded = false;
    #error;
    #wake;
    constructor(onLeave) {
        this.#onLeave = onLeave;
    }
    get nUnread() {
        return this.#unread.length;
    }
    push(item) {
        this.#unread.push(item);
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
