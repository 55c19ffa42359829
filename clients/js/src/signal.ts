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
  if (signal?.aborted === true) {
    throw new AbortedError(signal.reason);
  }
}

/** `promise`, unless the signal fires or the time is over first. */
export function within<T>(promise: Promise<T>, signal: Signal | undefined, timeoutMs?: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => settle(() => reject(new AbortedError(signal?.reason)));
    const onTimeout = () => settle(() => reject(new Error(`no answer within ${timeoutMs} ms`)));
    const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs);
    const settle = (act: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      act();
    };
    signal?.addEventListener("abort", onAbort);
    promise.then(
      (value) => settle(() => resolve(value)),
      (error: unknown) => settle(() => reject(error)),
    );
    if (signal?.aborted === true) {
      onAbort();
    }
  });
}
