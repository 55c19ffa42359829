/** What a browser tells about its page. Node.js and React Native tell nothing. */
import { nowMs } from "./clock.js";
/** How long nothing is connected once the page begins to be left, in milliseconds: it may also stay, as for a download. */
const LEAVING_MS = 2_000;
const TYPES = ["online", "visibilitychange", "beforeunload"];
const page = globalThis;
/** Listens for what is good or bad for a new connection, until `end`. */
export class PageEvents {
    #onMayConnect;
    #leavingUntilMs = 0;
    /** @param onMayConnect it may be worth to connect at once: there is a network, or the page is shown again. */
    constructor(onMayConnect) {
        this.#onMayConnect = onMayConnect;
        TYPES.forEach((type) => page.addEventListener?.(type, this));
    }
    /** How long to wait before a connection is made, in milliseconds: a page that goes would leave it at once. */
    get waitMs() {
        return this.#leavingUntilMs - nowMs();
    }
    /** @internal */
    handleEvent({ type }) {
        if (type === "beforeunload") {
            // Firefox then closes the connections of the page, which still runs for a moment.
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
