/** The screen of the device, in browsers that can keep it on. */
/** Keeps the screen on. The browser takes the lock away when the page is hidden. */
export class ScreenLock {
    #lock;
    /** Asks for the lock if it is not held and the page is visible. */
    hold() {
        if (this.#lock === undefined && globalThis.document.visibilityState === "visible") {
            this.#lock = this.#request();
        }
    }
    release() {
        void this.#lock?.then((held) => held?.release());
        this.#lock = undefined;
    }
    async #request() {
        try {
            const held = await globalThis.navigator.wakeLock.request("screen");
            held.addEventListener("release", () => {
                this.#lock = undefined;
            });
            return held;
        }
        catch {
            // Not all browsers have it, and one that saves power refuses: the screen may turn off then.
            this.#lock = undefined;
            return undefined;
        }
    }
}
