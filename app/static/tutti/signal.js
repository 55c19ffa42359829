/** Cancelling, in environments with and without the DOM. */
/** A signal that its owner fires, and that needs no `AbortController`. */
export class OwnSignal {
    aborted = false;
    reason;
    #listeners = new Set();
    addEventListener(_type, listener) {
        this.#listeners.add(listener);
    }
    removeEventListener(_type, listener) {
        this.#listeners.delete(listener);
    }
    /** Fires. A second call has no effect. */
    abort(reason) {
        if (!this.aborted) {
            this.aborted = true;
            this.reason = reason;
            this.#listeners.forEach((listener) => listener());
        }
    }
}
