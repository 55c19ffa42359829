/** A WebSocket without a network: the test plays the server. */

import type { Socket, SocketEvent, SocketEventType, SocketListener } from "../src/index.js";
import { STARTED } from "./server_messages.js";

export class FakeSocket implements Socket {
  url = "";
  protocols: string[] = [];
  bufferedAmount = 0;
  readonly sentText: unknown[] = [];
  readonly sentAudio: number[][] = [];
  closedWith: number | undefined;
  /** Resolves when the client has asked for the socket. */
  readonly isWanted: Promise<void>;
  #want: () => void = () => {};
  readonly #listeners: [SocketEventType, SocketListener][] = [];

  constructor() {
    this.isWanted = new Promise((resolve) => {
      this.#want = resolve;
    });
  }

  /** The value for `openSocket`. */
  readonly open = (url: string, protocols: string[]): Socket => {
    this.url = url;
    this.protocols = protocols;
    this.#want();
    return this;
  };

  send(data: string | ArrayBuffer | ArrayBufferView): void {
    if (typeof data === "string") {
      this.sentText.push(JSON.parse(data));
    } else if (ArrayBuffer.isView(data)) {
      this.sentAudio.push([...new Uint8Array(data.buffer, data.byteOffset, data.byteLength)]);
    } else {
      this.sentAudio.push([...new Uint8Array(data)]);
    }
  }

  /** As in a browser, "close" comes later, unless it has come already. */
  close(code?: number): void {
    this.closedWith ??= code;
    queueMicrotask(() => this.emit("close", { code: code ?? 1005 }));
  }

  addEventListener(type: SocketEventType, listener: SocketListener): void {
    this.#listeners.push([type, listener]);
  }

  removeEventListener(type: SocketEventType, listener: SocketListener): void {
    const index = this.#listeners.findIndex(([t, l]) => t === type && l === listener);
    if (index >= 0) {
      this.#listeners.splice(index, 1);
    }
  }

  get nListeners(): number {
    return this.#listeners.length;
  }

  emit(type: SocketEventType, event: SocketEvent = {}): void {
    for (const [listenedTo, listener] of this.#listeners.slice()) {
      if (listenedTo === type) {
        listener(event);
      }
    }
  }

  /** The server sends a message. */
  deliver(...messages: unknown[]): void {
    for (const message of messages) {
      this.emit("message", { data: JSON.stringify(message) });
    }
  }

  /** The server accepts the session. */
  accept(): void {
    this.emit("open");
    this.deliver(STARTED);
  }
}
