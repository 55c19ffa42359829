import { AbortedError } from "./errors.js";
export class OwnSignal {
    constructor() {
        this.aborted = false;
        this.#listeners = new Set();
    }
    #listeners;
    addEventListener(_type, listener) {
        this.#listeners.add(listener);
    }
    removeEventListener(_type, listener) {
        this.#listeners.delete(listener);
    }
    abort(reason) {
        if (!this.aborted) {
            this.aborted = true;
            this.reason = reason;
            this.#listeners.forEach((listener) => listener());
        }
    }
}
export function throwIfAborted(signal) {
    if (signal?.aborted) {
        throw new AbortedError(signal.reason);
    }
}
export async function within(promise, signal, timeoutMs) {
    let onAbort = () => { };
    let timer;
    try {
        return await new Promise((resolve, reject) => {
            onAbort = () => reject(new AbortedError(signal?.reason));
            signal?.addEventListener("abort", onAbort);
            if (timeoutMs !== undefined) {
                timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
            }
            promise.then(resolve, reject);
            if (signal?.aborted) {
                onAbort();
            }
        });
    }
    finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
    }
}
