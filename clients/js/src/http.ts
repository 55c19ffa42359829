/**
 * Uploads a form and reads the answer as it comes: with XMLHttpRequest where there is one, since it alone tells how much
 * has been uploaded, and with `fetch` elsewhere. Both reject with an AbortedError when the signal fires.
 */

import { AbortedError, ConnectError, TuttiError, UsageError } from "./errors.js";
import type { Form } from "./form.js";
import { Queue } from "./queue.js";
import type { Signal } from "./signal.js";

/** The answer to an upload. `text` ends when the answer ends, and throws a ConnectError if it is cut off before. */
export interface Answer {
  readonly status: number;
  /** The options that have no effect on the server, separated by commas and blanks; empty if all have one. */
  readonly ignored: string;
  readonly text: AsyncIterable<string>;
}

/** The header that names them. */
const IGNORED = "x-tutti-ignored";

/** What to upload, and where. */
export interface Upload {
  readonly url: string;
  readonly form: Form;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: Signal;
  /** Called with the share of the form that has been uploaded, from 0 to 1. With `fetch` it is only called with 1. */
  readonly onUploaded: (share: number) => void;
}

/** Resolves when the answer has begun. */
export function upload(request: Upload): Promise<Answer> {
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

async function byFetch({ url, form, headers, signal, onUploaded }: Upload): Promise<Answer> {
  const controller = typeof AbortController === "undefined" ? undefined : new AbortController();
  signal.addEventListener("abort", () => controller?.abort());
  const aborted = new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(failure(url, signal))));
  aborted.catch(() => {});
  try {
    const response = await Promise.race([
      fetch(url, {
        method: "POST",
        body: form.body as Blob,
        headers: { ...headers, "content-type": form.contentType },
        signal: controller?.signal ?? null,
      }),
      aborted,
    ]);
    onUploaded(1);
    const { status } = response;
    const ignored = response.headers.get(IGNORED) ?? "";
    if (typeof TextDecoder === "undefined" || typeof response.body?.getReader !== "function") {
      // The answer cannot be read as it comes, so it begins when all of it is there.
      const text = await Promise.race([response.text(), aborted]);
      return { status, ignored, text: whole(text) };
    }
    return { status, ignored, text: body(response, url, signal) };
  } catch (error) {
    throw error instanceof TuttiError ? error : failure(url, signal, error);
  }
}

async function* whole(text: string): AsyncGenerator<string, void, undefined> {
  yield text;
}

async function* body(response: Response, url: string, signal: Signal): AsyncGenerator<string, void, undefined> {
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
  } catch (error) {
    throw failure(url, signal, error);
  } finally {
    // Leaving early ends the request.
    await reader?.cancel().catch(() => {});
  }
}

function byXhr({ url, form, headers, signal, onUploaded }: Upload): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    const received = new Queue<string>(() => xhr.abort());
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
    xhr.send(form.body as Blob);
  });
}

function failure(url: string, signal: Signal, cause?: unknown): TuttiError {
  if (signal.aborted) {
    return new AbortedError(signal.reason);
  }
  return new ConnectError("connect_failed", `the connection to ${url} failed`, undefined, cause);
}
