/** Cancelling, in environments with and without the DOM. */

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
