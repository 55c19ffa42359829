import { OPEN_TIMEOUT_MS } from "./connection.js";
import { ConnectError, UsageError } from "./errors.js";
import { throwIfAborted, within } from "./signal.js";
const SUBPROTOCOL = "tutti.v1";
const KEY_SUBPROTOCOL_PREFIX = "tutti.key.";
export const STREAM_PATH = "/v1/stream";
export const PROBE_TIMEOUT_MS = 5_000;
const ADDRESS = /^(http|ws)(s?):\/\/((?:[^\s/?#@:[\]\\]+|\[[\da-f:.]+\])(?::\d+)?)(\/[^?#]*)?(\?[^#]*)?(?:#.*)?$/i;
export function serverOf(url, options) {
    const target = streamUrl(url);
    const { apiKey, openSocket = openWebSocket } = options;
    return {
        url: target,
        openSocket: (key) => openSocket(target, subprotocols(key)),
        probe: () => probe(target, apiKey),
    };
}
export async function askForKey(ask, { signal, timeoutMs = Infinity }) {
    try {
        return await within(Promise.resolve(ask()), signal, Math.min(timeoutMs, OPEN_TIMEOUT_MS));
    }
    catch (error) {
        throwIfAborted(signal);
        throw new ConnectError("no_api_key", `apiKey: ${String(error)}`, undefined, error);
    }
}
export function streamUrl(url) {
    const [, , secure, host, path = "/", query = ""] = partsOf(url);
    return `ws${secure?.toLowerCase()}://${host}${path === "/" ? STREAM_PATH : path}${query}`;
}
export function httpUrl(target, path) {
    const [, , secure, host, pathname = "", query = ""] = partsOf(target);
    if (!pathname.endsWith(STREAM_PATH)) {
        throw new UsageError("bad_url", `url: expected no path, or one that ends in ${STREAM_PATH}, got ${pathname}`);
    }
    return `http${secure}://${host}${pathname.slice(0, -STREAM_PATH.length)}${path}${query}`;
}
function partsOf(url) {
    const text = String(url?.href ?? url).trim();
    const parts = text.match(ADDRESS);
    if (parts === null) {
        const message = `url: expected an absolute URL with ws, wss, http or https, got ${JSON.stringify(text)}`;
        throw new UsageError("bad_url", message);
    }
    return parts;
}
function subprotocols(apiKey) {
    if (apiKey === undefined) {
        return [SUBPROTOCOL];
    }
    if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(apiKey)) {
        throw new UsageError("bad_api_key", "apiKey: expected letters, digits and any of !#$%&'*+-.^_`|~");
    }
    return [SUBPROTOCOL, KEY_SUBPROTOCOL_PREFIX + apiKey];
}
function openWebSocket(url, protocols) {
    if (typeof WebSocket === "undefined") {
        throw new UsageError("no_websocket", "there is no WebSocket; pass one as openSocket");
    }
    return new WebSocket(url, protocols);
}
export async function probe(target, apiKey) {
    if (typeof fetch === "undefined" || !target.split("?")[0]?.endsWith(STREAM_PATH)) {
        return undefined;
    }
    const headers = typeof apiKey === "string" ? { authorization: `Bearer ${apiKey}` } : {};
    const answer = within(fetch(httpUrl(target, "/v1/models"), { headers }), undefined, PROBE_TIMEOUT_MS);
    return answer.then(({ status }) => status, () => 0);
}
