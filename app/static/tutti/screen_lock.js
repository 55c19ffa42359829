export class ScreenLock {
    #lock;
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
            this.#lock = undefined;
            return undefined;
        }
    }
}
