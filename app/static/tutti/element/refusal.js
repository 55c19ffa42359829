import { ConnectError } from "../errors.js";
import { httpUrl, probe, PROBE_TIMEOUT_MS, STREAM_PATH, streamUrl } from "../server.js";
import { within } from "../signal.js";
const ORIGIN_HEADER = "x-tutti-origin";
export async function explain(error, server, apiKey) {
    const target = streamUrl(server);
    const { origin, pathname } = new URL(target);
    if (!(error instanceof ConnectError) || error.code !== "connect_failed" || !pathname.endsWith(STREAM_PATH)) {
        return error;
    }
    const [code, reason] = await reasonOf(target, apiKey);
    return new ConnectError(code, `the server at ${origin.replace("ws", "http")} ${reason}`, error.closeCode, error);
}
async function reasonOf(target, apiKey) {
    const asked = fetch(httpUrl(target, "/static/tutti/index.js"), { method: "HEAD", cache: "no-store" });
    const file = await within(asked, undefined, PROBE_TIMEOUT_MS).catch(() => undefined);
    if (file === undefined) {
        return ["connect_failed", "is not there: its address is wrong, or it does not run"];
    }
    if (file.headers.get(ORIGIN_HEADER) === "refused") {
        const { origin } = globalThis.location;
        return ["origin_not_allowed", `refuses this page: its operator can add ${origin} to TUTTI_ALLOWED_ORIGINS`];
    }
    const status = await probe(target, apiKey);
    const key = apiKey === undefined ? "needs an API key" : "refuses the API key";
    if (status === 401 || status === 403) {
        return ["unauthorized", key];
    }
    return ["connect_failed", `opens no session: it may be full${status === 0 ? `, or it ${key}` : ""}`];
}
