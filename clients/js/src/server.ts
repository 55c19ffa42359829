/** The address of a server, its key, and how to reach it. */

import { UsageError } from "./errors.js";
import type { ConnectOptions } from "./options.js";
import type { Socket } from "./socket.js";

const SUBPROTOCOL = "tutti.v1";
const KEY_SUBPROTOCOL_PREFIX = "tutti.key.";
const STREAM_PATH = "/v1/stream";
/** How long the request that finds out whether the key is refused may take. */
const PROBE_TIMEOUT_MS = 5_000;

/** What a session needs to connect. */
export interface Server {
  readonly openSocket: () => Socket;
  readonly isKeyRefused: () => Promise<boolean>;
}

/** @throws UsageError if the address or the key is malformed. */
export function serverOf(url: string | URL, options: ConnectOptions): Server {
  const target = streamUrl(url);
  const protocols = subprotocols(options.apiKey);
  return {
    openSocket: () => (options.openSocket ?? openWebSocket)(target, protocols),
    isKeyRefused: () => isKeyRefused(target, options.apiKey),
  };
}

export function streamUrl(url: string | URL): string {
  let target: URL;
  try {
    target = new URL(url);
  } catch (error) {
    throw new UsageError("bad_url", `url: expected an absolute URL, got ${JSON.stringify(String(url))}`, error);
  }
  const secure = target.protocol === "https:" || target.protocol === "wss:";
  if (!secure && target.protocol !== "http:" && target.protocol !== "ws:") {
    throw new UsageError("bad_url", `url: expected ws, wss, http or https, got ${JSON.stringify(target.protocol)}`);
  }
  // A WebSocket URL may not have a fragment, and the protocol of some URLs cannot be assigned. So we build a new one.
  const path = target.pathname === "/" || target.pathname === "" ? STREAM_PATH : target.pathname;
  return `${secure ? "wss" : "ws"}://${target.host}${path}${target.search}`;
}

/** The address of another path of the server whose address for streams is `target`, as `streamUrl` returns it. */
export function httpUrl(target: string, path: string): string {
  const { protocol, host, pathname, search } = new URL(target);
  if (!pathname.endsWith(STREAM_PATH)) {
    throw new UsageError("bad_url", `url: expected no path, or one that ends in ${STREAM_PATH}, got ${pathname}`);
  }
  return `${protocol === "wss:" ? "https" : "http"}://${host}${pathname.slice(0, -STREAM_PATH.length)}${path}${search}`;
}

function subprotocols(apiKey: string | undefined): string[] {
  if (apiKey === undefined) {
    return [SUBPROTOCOL];
  }
  // The characters of an HTTP token. The error message does not contain the key.
  if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(apiKey)) {
    throw new UsageError("bad_api_key", "apiKey: expected letters, digits and any of !#$%&'*+-.^_`|~");
  }
  return [SUBPROTOCOL, KEY_SUBPROTOCOL_PREFIX + apiKey];
}

function openWebSocket(url: string, protocols: string[]): Socket {
  if (typeof WebSocket === "undefined") {
    throw new UsageError("no_websocket", "this environment has no WebSocket; pass one as openSocket");
  }
  return new WebSocket(url, protocols);
}

/** Asks over HTTP whether the server refuses the key: a WebSocket does not tell why it was refused. */
async function isKeyRefused(target: string, apiKey: string | undefined): Promise<boolean> {
  const headers = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  try {
    const url = httpUrl(target, "/v1/models");
    const { status } = await fetch(url, { headers, signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
    return status === 401 || status === 403;
  } catch {
    // The server cannot be reached, is another origin that allows no such request, or its address is a special one.
    return false;
  }
}
