/** Cancelling and time limits, in environments with and without the DOM. */
import { AbortedError } from "./errors.js";
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
/** @throws AbortedError if the signal has fired: it tells its listeners nothing more. */
export function throwIfAborted(signal) {
    if (signal?.aborted === true) {
        throw new AbortedError(signal.reason);
    }
}
/** `promise`, unless the signal fires or the time is over first. */
export function within(promise, signal, timeoutMs) {
    return new Promise((resolve, reject) => {
        const onAbort = () => settle(() => reject(new AbortedError(signal?.reason)));
        const onTimeout = () => settle(() => reject(new Error(`no answer within ${timeoutMs} ms`)));
        const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs);
        const settle = (act) => {
            clearTimeout(timer);
            signal?.removeEventListener("abort", onAbort);
            act();
        };
        signal?.addEventListener("abort", onAbort);
        promise.then((value) => settle(() => resolve(value)), (error) => settle(() => reject(error)));
        if (signal?.aborted === true) {
            onAbort();
        }
    });
}
