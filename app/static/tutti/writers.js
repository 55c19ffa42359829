/** The callers that wait until less audio is unsent. */
/** A WebSocket has no event for an empty buffer, so it is checked, but only while a caller waits. */
const CHECK_MS = 20;
/** Lets callers wait until `isWritable` holds. */
export class Writers {
    #isWritable;
    #waiting = [];
    #timer;
    constructor(isWritable) {
        this.#isWritable = isWritable;
    }
    wait() {
        if (this.#isWritable()) {
            return Promise.resolve();
        }
        return new Promise((resolve, reject) => {
            this.#waiting.push({ resolve, reject });
            this.#timer ??= setInterval(() => this.#isWritable() && this.#release((writer) => writer.resolve()), CHECK_MS);
        });
    }
    /** Rejects for all that wait. */
    end(error) {
        this.#release((writer) => writer.reject(error));
    }
    #release(wake) {
        clearInterval(this.#timer);
        this.#timer = undefined;
        this.#waiting.splice(0).forEach(wake);
    }
}
