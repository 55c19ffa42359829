import { AbortedError, ConnectError, TuttiError, UsageError } from "./errors.js";
import { Queue } from "./queue.js";
const IGNORED = "x-tutti-ignored";
export function upload(request) {
    if (request.signal.aborted) {
        return Promise.reject(new AbortedError(request.signal.reason));
    }
    if (typeof XMLHttpRequest !== "undefined") {
        return byXhr(request);
    }
    if (typeof fetch === "undefined") {
        return Promise.reject(new UsageError("no_fetch", "this environment has neither fetch nor XMLHttpRequest"));
    }
    return byFetch(request);
}
async function byFetch({ url, form, headers, signal, onUploaded }) {
    const controller = typeof AbortController === "undefined" ? undefined : new AbortController();
    signal.addEventListener("abort", () => controller?.abort());
    const aborted = new Promise((_, reject) => signal.addEventListener("abort", () => reject(failure(url, signal))));
    aborted.catch(() => { });
    try {
        const response = await Promise.race([
            fetch(url, {
                method: "POST",
                body: form.body,
                headers: { ...headers, "content-type": form.contentType },
                signal: controller?.signal ?? null,
            }),
            aborted,
        ]);
        onUploaded(1);
        const { status } = response;
        const ignored = response.headers.get(IGNORED) ?? "";
        if (typeof TextDecoder === "undefined" || typeof response.body?.getReader !== "function") {
            const text = await Promise.race([response.text(), aborted]);
            return { status, ignored, text: whole(text) };
        }
        return { status, ignored, text: body(response, url, signal) };
    }
    catch (error) {
        throw error instanceof TuttiError ? error : failure(url, signal, error);
    }
}
async function* whole(text) {
    yield text;
}
async function* body(response, url, signal) {
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    try {
        for (;;) {
            const chunk = await reader?.read();
            if (chunk === undefined || chunk.done) {
                return;
            }
            yield decoder.decode(chunk.value, { stream: true });
        }
    }
    catch (error) {
        throw failure(url, signal, error);
    }
    finally {
        await reader?.cancel().catch(() => { });
    }
}
function byXhr({ url, form, headers, signal, onUploaded }) {
    return new Promise((resolve, reject) => {
        const xhr = new XMLHttpRequest();
        const received = new Queue(() => xhr.abort());
        let nReceived = 0;
        const receive = () => {
            received.push(xhr.responseText.slice(nReceived));
            nReceived = xhr.responseText.length;
        };
        const onAbort = () => xhr.abort();
        const fail = () => {
            const error = failure(url, signal);
            received.end(error);
            reject(error);
        };
        xhr.open("POST", url);
        for (const [name, value] of Object.entries({ ...headers, "content-type": form.contentType })) {
            xhr.setRequestHeader(name, value);
        }
        xhr.upload.onprogress = (event) => onUploaded(event.total === 0 ? 1 : event.loaded / event.total);
        xhr.upload.onload = () => onUploaded(1);
        xhr.onreadystatechange = () => {
            if (xhr.readyState === XMLHttpRequest.HEADERS_RECEIVED) {
                resolve({ status: xhr.status, ignored: xhr.getResponseHeader(IGNORED) ?? "", text: received.read() });
            }
        };
        xhr.onprogress = receive;
        xhr.onload = () => {
            receive();
            received.end();
        };
        xhr.onerror = xhr.onabort = fail;
        xhr.onloadend = () => signal.removeEventListener("abort", onAbort);
        signal.addEventListener("abort", onAbort);
        xhr.send(form.body);
    });
}
function failure(url, signal, cause) {
    if (signal.aborted) {
        return new AbortedError(signal.reason);
    }
    return new ConnectError("connect_failed", `the connection to ${url} failed`, undefined, cause);
}
