/** Why a server opened no session: browsers say the same of one that refuses a page and of one that is not there. */
import { ConnectError } from "../errors.js";
import { httpUrl, STREAM_PATH, streamUrl } from "../server.js";
/** How long one of the two questions may take. */
const QUESTION_TIMEOUT_MS = 5_000;
/** The header with which files of the client tell a page that it may use nothing else of the server. */
const ORIGIN_HEADER = "x-tutti-origin";
/** The error to report in place of `error`: with a reason for people, if it is one of a connection that failed. */
export async function explain(error, server, apiKey) {
    const target = streamUrl(server);
    const isUnexplained = error instanceof ConnectError && error.code === "connect_failed";
    if (!isUnexplained || !new URL(target).pathname.endsWith(STREAM_PATH)) {
        return error;
    }
    const [code, message] = await reasonOf(target, apiKey);
    return new ConnectError(code, message, error.closeCode, error);
}
async function reasonOf(target, apiKey) {
    const name = new URL(httpUrl(target, "/")).origin;
    // Pages of any origin may ask for this file, without asking for permission first.
    const file = await ask(httpUrl(target, "/static/tutti/index.js"), { method: "HEAD" });
    if (file === undefined) {
        return ["connect_failed", `there is no server at ${name}: the address is wrong, or the server does not run`];
    }
    const { origin } = globalThis.location;
    if (file.headers.get(ORIGIN_HEADER) === "refused") {
        const remedy = `its operator can add ${origin} to TUTTI_ALLOWED_ORIGINS`;
        return ["origin_not_allowed", `the server at ${name} is there, but it refuses this page: ${remedy}`];
    }
    const headers = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
    const models = await ask(httpUrl(target, "/v1/models"), { headers });
    const isKeyRefused = models?.status === 401 || models?.status === 403;
    if (isKeyRefused && apiKey === undefined) {
        return ["unauthorized", `the server at ${name} needs an API key`];
    }
    if (isKeyRefused) {
        return ["unauthorized", `the server at ${name} does not accept the API key`];
    }
    // The second answer of another origin cannot be read.
    const key = models !== undefined ? "" : apiKey === undefined ? ", or it needs an API key" : ", or it refuses the API key";
    return ["connect_failed", `the server at ${name} is there, but it opens no session: it may be full${key}`];
}
/** The answer of a server; undefined if there is none, or none that this page may read. */
async function ask(url, options) {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), QUESTION_TIMEOUT_MS);
    try {
        return await fetch(url, { ...options, cache: "no-store", signal: controller.signal });
    }
    catch {
        return undefined;
    }
    finally {
        clearTimeout(timer);
    }
}
