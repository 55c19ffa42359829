/** Cancelling and time limits, in environments with and without the DOM. */

import { AbortedError } from "./errors.js";

/** The part of an `AbortSignal` that this package uses. React Native's has no `reason`. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(type: "abort", listener: () => void): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** A signal that its owner fires, and that needs no `AbortController`. */
export class OwnSignal implements Signal {
  aborted = false;
  reason: unknown;
  readonly #listeners = new Set<() => void>();

  addEventListener(_type: "abort", listener: () => void): void {
    this.#listeners.add(listener);
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    this.#listeners.delete(listener);
  }

  /** Fires. A second call has no effect. */
  abort(reason?: unknown): void {
    if (!this.aborted) {
      this.aborted = true;
      this.reason = reason;
      this.#listeners.forEach((listener) => listener());
    }
  }
}

/** @throws AbortedError if the signal has fired: it tells its listeners nothing more. */
export function throwIfAborted(signal: Signal | undefined): void {
  if (signal?.aborted) {
    throw new AbortedError(signal.reason);
  }
}

/** `promise`, unless the signal fires or the time is over first. */
export async function within<T>(promise: Promise<T>, signal: Signal | undefined, timeoutMs?: number): Promise<T> {
  let onAbort = () => {};
  let timer: ReturnType<typeof setTimeout> | undefined;
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
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
  }
}
