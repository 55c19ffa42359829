import { nowMs } from "./clock.js";
const LEAVING_MS = 2_000;
const TYPES = ["online", "visibilitychange", "beforeunload"];
const page = globalThis;
export class PageEvents {
    #onMayConnect;
    #leavingUntilMs = 0;
    constructor(onMayConnect) {
        this.#onMayConnect = onMayConnect;
        TYPES.forEach((type) => page.addEventListener?.(type, this));
    }
    get waitMs() {
        return this.#leavingUntilMs - nowMs();
    }
    handleEvent({ type }) {
        if (type === "beforeunload") {
            this.#leavingUntilMs = nowMs() + LEAVING_MS;
        }
        else {
            this.#onMayConnect();
        }
    }
    end() {
        TYPES.forEach((type) => page.removeEventListener?.(type, this));
    }
}
