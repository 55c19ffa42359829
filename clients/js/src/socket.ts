/** The part of a WebSocket that a session uses. Browsers, React Native, Node 22 and the package `ws` have it. */

/** The fields that a session reads: `data` of a message, `code` and `reason` of a close. */
export interface SocketEvent {
  readonly type?: string;
  readonly data?: unknown;
  readonly code?: number;
  readonly reason?: string;
}

export type SocketEventType = "open" | "message" | "error" | "close";
export type SocketListener = (event: SocketEvent) => void;

/** An open or opening WebSocket. */
export interface Socket {
  /** The number of bytes that were given to `send` and are not sent yet. React Native does not tell. */
  readonly bufferedAmount?: number | undefined;
  send(data: string | ArrayBuffer | ArrayBufferView): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: SocketEventType, listener: SocketListener): void;
  removeEventListener(type: SocketEventType, listener: SocketListener): void;
}

/** Begins to connect. It may throw an error if the address or a protocol is malformed. */
export type OpenSocket = (url: string, protocols: string[]) => Socket;
