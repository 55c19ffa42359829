/** The little of a WebSocket that a session needs: browsers, Node 22 and the `ws` package all have it. */

/** What listeners read: `data` of a message, `code` and `reason` of a close. */
export interface SocketEvent {
  readonly type?: string;
  readonly data?: unknown;
  readonly code?: number;
  readonly reason?: string;
}

export type SocketEventType = "open" | "message" | "error" | "close";
export type SocketListener = (event: SocketEvent) => void;

export interface Socket {
  /** Bytes given to `send` that have not left yet. */
  readonly bufferedAmount: number;
  send(data: string | ArrayBuffer | ArrayBufferView): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: SocketEventType, listener: SocketListener): void;
  removeEventListener(type: SocketEventType, listener: SocketListener): void;
}

/** Begins to connect; may throw if the address or a protocol is malformed. */
export type OpenSocket = (url: string, protocols: string[]) => Socket;
