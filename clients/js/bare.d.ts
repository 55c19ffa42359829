/**
 * What the core uses of its environment, without the DOM. `npm run check` compiles the core with these declarations in
 * place of the DOM's, so that it uses nothing else. Only timers and a WebSocket are needed; `typeof` asks for the rest.
 */

type Timer = { readonly timer: unique symbol };
declare function setTimeout(action: () => void, delayMs?: number): Timer;
declare function clearTimeout(timer: Timer | undefined): void;
declare function setInterval(action: () => void, delayMs?: number): Timer;
declare function clearInterval(timer: Timer | undefined): void;

/** The global is a constructor, as everywhere; a session uses the interface `Socket` of `socket.ts`. */
declare const WebSocket: new (url: string, protocols: string[]) => import("./src/socket.js").Socket;
declare const performance: { now(): number };

/** Uploads of files. */
interface Blob extends BlobShape {
  slice(start?: number, end?: number, type?: string): Blob;
}
interface BlobShape {
  readonly size: number;
  readonly type: string;
}
declare const Blob: new (parts: readonly (string | Blob)[]) => Blob;
declare const AbortController: new () => { readonly signal: object; abort(): void };
declare const TextDecoder: new () => { decode(bytes: Uint8Array | undefined, options: { stream: boolean }): string };
interface Response {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body?: {
    getReader(): { read(): Promise<{ done: boolean; value?: Uint8Array }>; cancel(): Promise<void> };
  } | null;
  text(): Promise<string>;
}
declare function fetch(
  url: string,
  init: {
    readonly method?: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: Blob;
    readonly signal?: object | null;
  },
): Promise<Response>;
declare const XMLHttpRequest: {
  new (): XhrShape;
  readonly HEADERS_RECEIVED: number;
};
interface XhrShape {
  readonly status: number;
  readonly readyState: number;
  readonly responseText: string;
  readonly upload: {
    onprogress: ((event: { readonly loaded: number; readonly total: number }) => void) | null;
    onload: (() => void) | null;
  };
  onreadystatechange: (() => void) | null;
  onprogress: (() => void) | null;
  onload: (() => void) | null;
  onerror: (() => void) | null;
  onabort: (() => void) | null;
  onloadend: (() => void) | null;
  open(method: string, url: string): void;
  setRequestHeader(name: string, value: string): void;
  getResponseHeader(name: string): string | null;
  send(body: Blob): void;
  abort(): void;
}
