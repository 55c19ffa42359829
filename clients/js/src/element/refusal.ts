/** Why a server opened no session: browsers say the same of one that refuses a page and of one that is not there. */

import { ConnectError } from "../errors.js";
import { httpUrl, probe, PROBE_TIMEOUT_MS, STREAM_PATH, streamUrl } from "../server.js";
import { within } from "../signal.js";

/** The header with which files of the client tell a page that it may use nothing else of the server. */
const ORIGIN_HEADER = "x-tutti-origin";

/** The error to report in place of `error`: with a reason for people, if it is one of a connection that failed. */
export async function explain(error: unknown, server: URL, apiKey: string | undefined): Promise<unknown> {
  const target = streamUrl(server);
  const { origin, pathname } = new URL(target);
  if (!(error instanceof ConnectError) || error.code !== "connect_failed" || !pathname.endsWith(STREAM_PATH)) {
    return error;
  }
  const [code, reason] = await reasonOf(target, apiKey);
  return new ConnectError(code, `the server at ${origin.replace("ws", "http")} ${reason}`, error.closeCode, error);
}

async function reasonOf(target: string, apiKey: string | undefined): Promise<readonly [code: string, reason: string]> {
  // Pages of any origin may ask for this file, without asking for permission first.
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
  // A status of 0: the answer of another origin cannot be read.
  return ["connect_failed", `opens no session: it may be full${status === 0 ? `, or it ${key}` : ""}`];
}
