/** The address of a server, its key, and how to reach it. */

import { OPEN_TIMEOUT_MS } from "./connection.js";
import { ConnectError, UsageError } from "./errors.js";
import type { ApiKey, ConnectOptions } from "./options.js";
import { throwIfAborted, within } from "./signal.js";
import type { Socket } from "./socket.js";

const SUBPROTOCOL = "tutti.v1";
const KEY_SUBPROTOCOL_PREFIX = "tutti.key.";
export const STREAM_PATH = "/v1/stream";
/** How long the request that finds out whether the server is there may take. */
export const PROBE_TIMEOUT_MS = 5_000;
/** The scheme, the host with its port, the path and the query of an address. React Native's `URL` does not know them all. */
const ADDRESS = /^(http|ws)(s?):\/\/((?:[^\s/?#@:[\]\\]+|\[[\da-f:.]+\])(?::\d+)?)(\/[^?#]*)?(\?[^#]*)?(?:#.*)?$/i;

/** The address of a server: a text, or a `URL`. */
export type Address = string | { readonly href: string };

/** What a session needs to connect. */
export interface Server {
  readonly url: string;
  /** @throws UsageError if the key is malformed. */
  readonly openSocket: (apiKey: string | undefined) => Socket;
  /**
   * Asks over HTTP whether the server is there and takes the key, which a WebSocket does not tell. Resolves with the
   * status of the answer, 0 if there is none, and undefined where it cannot be asked.
   */
  readonly probe: () => Promise<number | undefined>;
}

/** @throws UsageError if the address is malformed. */
export function serverOf(url: Address, options: ConnectOptions): Server {
  const target = streamUrl(url);
  const { apiKey, openSocket = openWebSocket } = options;
  return {
    url: target,
    openSocket: (key) => openSocket(target, subprotocols(key)),
    probe: () => probe(target, apiKey),
  };
}

/**
 * Asks the application for a key.
 *
 * @throws ConnectError if it fails, or takes longer than a connection may take to open; AbortedError.
 */
export async function askForKey(
  ask: Extract<ApiKey, () => unknown>,
  { signal, timeoutMs = Infinity }: Pick<ConnectOptions, "signal" | "timeoutMs">,
): Promise<string | undefined> {
  try {
    return await within(Promise.resolve(ask()), signal, Math.min(timeoutMs, OPEN_TIMEOUT_MS));
  } catch (error) {
    throwIfAborted(signal);
    throw new ConnectError("no_api_key", `apiKey: ${String(error)}`, undefined, error);
  }
}

export function streamUrl(url: Address): string {
  const [, , secure, host, path = "/", query = ""] = partsOf(url);
  // A WebSocket URL may not have a fragment.
  return `ws${secure?.toLowerCase()}://${host}${path === "/" ? STREAM_PATH : path}${query}`;
}

/** The address of another path of the server whose address for streams is `target`, as `streamUrl` returns it. */
export function httpUrl(target: string, path: string): string {
  const [, , secure, host, pathname = "", query = ""] = partsOf(target);
  if (!pathname.endsWith(STREAM_PATH)) {
    throw new UsageError("bad_url", `url: expected no path, or one that ends in ${STREAM_PATH}, got ${pathname}`);
  }
  return `http${secure}://${host}${pathname.slice(0, -STREAM_PATH.length)}${path}${query}`;
}

function partsOf(url: Address): RegExpMatchArray {
  const text = String((url as { href?: string } | undefined)?.href ?? url).trim();
  const parts = text.match(ADDRESS);
  if (parts === null) {
    const message = `url: expected an absolute URL with ws, wss, http or https, got ${JSON.stringify(text)}`;
    throw new UsageError("bad_url", message);
  }
  return parts;
}

function subprotocols(apiKey: string | undefined): string[] {
  if (apiKey === undefined) {
    return [SUBPROTOCOL];
  }
  // The characters of an HTTP token. The error message does not contain the key.
  if (!/^[\da-z!#$%&'*+.^_`|~-]+$/i.test(apiKey)) {
    throw new UsageError("bad_api_key", "apiKey: expected letters, digits and any of !#$%&'*+.^_`|~-");
  }
  return [SUBPROTOCOL, KEY_SUBPROTOCOL_PREFIX + apiKey];
}

function openWebSocket(url: string, protocols: string[]): Socket {
  if (typeof WebSocket === "undefined") {
    throw new UsageError("no_websocket", "there is no WebSocket; pass one as openSocket");
  }
  return new WebSocket(url, protocols);
}

/** Asks whether the server is there and takes the key, as `Server.probe` does. */
export async function probe(target: string, apiKey: ApiKey | undefined): Promise<number | undefined> {
  if (typeof fetch === "undefined" || !target.split("?")[0]?.endsWith(STREAM_PATH)) {
    return undefined;
  }
  const headers: Record<string, string> = typeof apiKey === "string" ? { authorization: `Bearer ${apiKey}` } : {};
  // Not `AbortSignal.timeout`, which React Native does not have.
  const answer = within(fetch(httpUrl(target, "/v1/models"), { headers }), undefined, PROBE_TIMEOUT_MS);
  return answer.then(({ status }) => status, () => 0);
}
