import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  AbortedError,
  connect,
  ConnectionLost,
  type ConnectOptions,
  ProtocolError,
  type Session,
  UsageError,
} from "../src/index.js";
import { FakeSocket } from "./fake_socket.js";
import { collect, ended, STARTED, STOPPED } from "./server_messages.js";
import type { SocketEvent } from "../src/socket.js";

const UTTERANCE = ended(0, 0, "Hello.", 1.5);
const LAG = { type: "lag", behind_s: 0 };

let socket: FakeSocket;

beforeEach(() => {
  vi.useFakeTimers();
  socket = new FakeSocket();
});

afterEach(() => {
  expect(vi.getTimerCount(), "timers that are left").toBe(0);
  vi.useRealTimers();
});

const begin = (options: ConnectOptions = {}) => connect("http://tutti", { openSocket: socket.open, ...options });

async function open(options: ConnectOptions = {}): Promise<Session> {
  const connecting = begin(options);
  socket.accept();
  return connecting;
}

/** Waits for one turn of the event loop, in which the fake socket emits "close". */
async function expectNothingLeft(): Promise<void> {
  await Promise.resolve();
  await Promise.resolve();
  expect(socket.nListeners, "listeners that are left").toBe(0);
  expect(vi.getTimerCount(), "timers that are left").toBe(0);
}

describe("connect", () => {
  test.each([
    ["http://tutti", "ws://tutti/v1/stream"],
    ["https://tutti:8443/", "wss://tutti:8443/v1/stream"],
    ["wss://tutti/eu/v1/stream?x=1#here", "wss://tutti/eu/v1/stream?x=1"],
    [new URL("ws://[::1]:8000"), "ws://[::1]:8000/v1/stream"],
  ])("%s becomes %s", async (url, target) => {
    const connecting = connect(url, { openSocket: socket.open });
    socket.accept();
    (await connecting).close();
    expect(socket.url).toBe(target);
  });

  test.each(["/v1/stream", "ftp://tutti", ""])("%j is not a URL of a server", async (url) => {
    await expect(connect(url, { openSocket: socket.open })).rejects.toMatchObject({ code: "bad_url" });
  });

  test("resolves with the server's answer, and names the subprotocol", async () => {
    const session = await open();
    expect([session.id, session.model, session.isOpen]).toEqual(["s_01", "tutti-demo", true]);
    expect(session.limits.max_ahead_s).toBe(60);
    expect(socket.protocols).toEqual(["tutti.v1"]);
    session.close();
  });

  test("sends the key as a subprotocol", async () => {
    (await open({ apiKey: "s3cret" })).close();
    expect(socket.protocols).toEqual(["tutti.v1", "tutti.key.s3cret"]);
  });

  test.each(["", "two words", "clé"])("refuses the key %j, which cannot be a subprotocol, and does not show it", async (apiKey) => {
    const error = await begin({ apiKey }).catch((e: unknown) => e);
    expect(error).toMatchObject({ code: "bad_api_key" });
    expect(apiKey === "" || !String(error).includes(apiKey)).toBe(true);
    await expectNothingLeft();
  });

  test("asks a function for the key", async () => {
    const connecting = begin({ apiKey: async () => "s3cret" });
    await socket.isWanted;
    await Promise.resolve();
    socket.accept();
    (await connecting).close();
    expect(socket.protocols).toEqual(["tutti.v1", "tutti.key.s3cret"]);
  });

  test.each([new TypeError("Failed to fetch"), "no key today", null])("rejects when there is no key: %s", async (cause) => {
    const rejects = begin({ apiKey: () => Promise.reject(cause) });
    await expect(rejects).rejects.toMatchObject({ name: "ConnectError", code: "no_api_key", message: `apiKey: ${cause}`, cause });
    const throws = begin({
      apiKey: () => {
        throw cause;
      },
    });
    await expect(throws).rejects.toMatchObject({ code: "no_api_key", cause });
    expect(socket.url).toBe("");
    await expectNothingLeft();
  });

  test.each([[{}, 10_000], [{ timeoutMs: 500 }, 500]])("waits no longer for the key than for the connection: %j", async (options, limitMs) => {
    const connecting = begin({ apiKey: () => new Promise(() => {}), ...options });
    const rejected = expect(connecting).rejects.toThrow(`apiKey: Error: no answer within ${limitMs} ms`);
    await vi.advanceTimersByTimeAsync(limitMs);
    await rejected;
    expect(socket.url).toBe("");
    await expectNothingLeft();
  });

  test("rejects on abort while it waits for the key", async () => {
    const controller = new AbortController();
    const connecting = begin({ apiKey: () => new Promise(() => {}), signal: controller.signal });
    controller.abort("changed my mind");
    await expect(connecting).rejects.toMatchObject({ name: "AbortedError", cause: "changed my mind" });
    await expectNothingLeft();
  });

  const refuse = (error: object) => {
    socket.emit("open");
    socket.deliver({ type: "error", ...error });
  };
  const CANNOT = /^cannot open a session at ws:.*\/v1\/stream: does the server run, and allow this origin\? \(1006\)$/;

  test.each<[string, () => void, object]>([
    [
      "the socket has an error",
      () => socket.emit("error"),
      { name: "ConnectError", code: "connect_failed", closeCode: 1006, message: expect.stringMatching(CANNOT) },
    ],
    [
      "the socket tells of its error",
      () => socket.emit("error", { message: "connect ECONNREFUSED 127.0.0.1:8000" } as SocketEvent),
      { message: expect.stringContaining("/v1/stream: connect ECONNREFUSED 127.0.0.1:8000 (1006)") },
    ],
    [
      "the socket closes",
      () => {
        socket.emit("open");
        socket.emit("close", { code: 1013, reason: "full" });
      },
      { name: "ConnectError", closeCode: 1013, message: expect.stringContaining("1013: full") },
    ],
    [
      "the server does not answer in time",
      () => {
        socket.emit("open");
        vi.advanceTimersByTime(500);
      },
      { code: "connect_timeout" },
    ],
    [
      "the server refuses `start`",
      () => refuse({ code: "bad_start", message: "task: expected …", fatal: true }),
      { name: "SessionError", code: "bad_start", message: "task: expected …" },
    ],
    [
      "the server cannot read `start`, and waits for another one",
      () => refuse({ code: "bad_json", message: "expected text of whole characters", fatal: false }),
      { name: "SessionError", code: "bad_json", message: "expected text of whole characters" },
    ],
    [
      "a message is not an event",
      () => {
        socket.emit("open");
        socket.deliver({ ...STARTED, model: 0 });
      },
      { message: expect.stringContaining("started.model: expected a string, got 0") },
    ],
  ])("rejects when %s, and leaves no listener or timer", async (_, act, expected) => {
    const connecting = begin({ timeoutMs: 500 });
    act();
    await expect(connecting).rejects.toMatchObject(expected);
    await expectNothingLeft();
  });

  test("rejects when the socket cannot be created", async () => {
    const cause = new SyntaxError("bad protocol");
    const openSocket = () => {
      throw cause;
    };
    await expect(begin({ openSocket })).rejects.toMatchObject({ code: "connect_failed", cause });
  });

  test("rejects on abort, and leaves no listener or timer", async () => {
    const controller = new AbortController();
    const removed = vi.spyOn(controller.signal, "removeEventListener");
    const connecting = begin({ signal: controller.signal });
    controller.abort("changed my mind");
    await expect(connecting).rejects.toMatchObject({ name: "AbortedError", code: "aborted", cause: "changed my mind" });
    expect(socket.closedWith).toBe(1000);
    expect(removed).toHaveBeenCalled();
    await expectNothingLeft();
  });

  test("does not open a socket when aborted before", async () => {
    await expect(begin({ signal: AbortSignal.abort() })).rejects.toThrow(AbortedError);
    expect(socket.url).toBe("");
  });

  test.each([{ translate: ["de"] }, { turns: true }, { words: true }])("nor when aborted while the parts for %j load", async (start) => {
    const controller = new AbortController();
    const connecting = begin({ signal: controller.signal, start });
    controller.abort("changed my mind");
    socket.isWanted.then(() => socket.accept());
    await expect(connecting).rejects.toMatchObject({ name: "AbortedError", cause: "changed my mind" });
    expect(socket.url).toBe("");
  });

  test("waits for hours where the limits are infinite", async () => {
    const connecting = begin({ timeoutMs: Infinity, stopTimeoutMs: Infinity });
    socket.emit("open");
    vi.advanceTimersByTime(3_600_000);
    socket.deliver(STARTED);
    const session = await connecting;
    session.stop();
    vi.advanceTimersByTime(3_600_000);
    expect(socket.closedWith).toBe(undefined);
    session.close();
    await expectNothingLeft();
  });

  test("gives the server longer for its answer than the network for the connection", async () => {
    const connecting = begin();
    vi.advanceTimersByTime(9_000);
    socket.emit("open");
    vi.advanceTimersByTime(39_000);
    socket.deliver(STARTED);
    (await connecting).close();
    await expectNothingLeft();
    socket = new FakeSocket();
    const unreachable = begin();
    vi.advanceTimersByTime(10_000);
    await expect(unreachable).rejects.toMatchObject({ code: "connect_timeout" });
    await expectNothingLeft();
  });
});

describe("the loop", () => {
  test("gives the events in order and ends after stopped", async () => {
    const session = await open();
    socket.deliver(UTTERANCE, { type: "applause" });
    const received = collect(session);
    await Promise.resolve();
    session.stop();
    socket.deliver({ type: "error", code: "bad_json", message: "…", fatal: false }, STOPPED);
    expect((await received).map((event) => event.type)).toEqual(["utterance", "unknown", "error", "stopped"]);
    expect(session.finalUntilS).toBe(1.5);
    await expectNothingLeft();
  });

  test("leaving it closes the session", async () => {
    const session = await open();
    socket.deliver(LAG);
    for await (const _ of session) {
      break;
    }
    expect([socket.closedWith, session.isOpen]).toEqual([1000, false]);
    await expectNothingLeft();
  });

  test("close() elsewhere ends it without an error", async () => {
    const session = await open();
    const received = collect(session);
    session.close();
    session.close();
    expect(await received).toEqual([]);
  });

  test("a fatal error is thrown, after the events before it", async () => {
    const session = await open();
    socket.deliver(UTTERANCE, { type: "error", code: "too_fast", message: "slow down", fatal: true });
    const iterator = session[Symbol.asyncIterator]();
    expect((await iterator.next()).value).toMatchObject({ type: "utterance" });
    await expect(iterator.next()).rejects.toMatchObject({ name: "SessionError", code: "too_fast", finalUntilS: 1.5 });
    await expectNothingLeft();
  });

  test.each([1000, 1006, 1008, 1009, 1011, 1012])("a close with %i before stopped is a lost connection", async (code) => {
    const session = await open({ start: { resume: { from_s: 12.5 } }, resumeBufferS: 0 });
    const received = collect(session);
    socket.emit("close", { code });
    await expect(received).rejects.toThrow(ConnectionLost);
    await expect(received).rejects.toMatchObject({ code: "connection_lost", closeCode: code, finalUntilS: 12.5 });
    await expectNothingLeft();
  });

  test("abort is thrown into it", async () => {
    const controller = new AbortController();
    const session = await open({ signal: controller.signal });
    const received = collect(session);
    controller.abort();
    await expect(received).rejects.toThrow(AbortedError);
    await expectNothingLeft();
  });

  test.each([["binary", new ArrayBuffer(2)], ["cut off", '{"type": "lag"']])("a %s message ends it", async (_, data) => {
    const session = await open();
    const received = collect(session);
    socket.emit("message", { data });
    await expect(received).rejects.toThrow(ProtocolError);
    await expectNothingLeft();
  });

  test("does not collect events without limit", async () => {
    const session = await open();
    for (let i = 0; i < 5000; i++) {
      socket.deliver(LAG);
    }
    await expect(collect(session)).rejects.toMatchObject({ code: "slow_reader" });
  });

  test("ends when the server never answers stop", async () => {
    const session = await open({ stopTimeoutMs: 700 });
    const received = collect(session);
    session.stop();
    session.stop();
    expect(socket.sentText.filter((message) => (message as { type: string }).type === "stop")).toHaveLength(1);
    vi.advanceTimersByTime(600);
    socket.deliver(LAG);
    vi.advanceTimersByTime(600);
    socket.deliver(LAG);
    vi.advanceTimersByTime(699);
    expect(socket.closedWith).toBeUndefined();
    vi.advanceTimersByTime(1);
    await expect(received).rejects.toMatchObject({ name: "ConnectionLost", code: "stop_timeout" });
    await expectNothingLeft();
  });
});

describe("sending", () => {
  test("audio keeps its bytes, whatever its type, and is cut to the server's limit", async () => {
    const session = await open();
    session.send(new Int16Array([0, 1, 2, 3, 4]).subarray(1));
    session.send(new Uint8Array([9, 8, 7]).buffer);
    session.send(new DataView(new ArrayBuffer(9)));
    session.send(new Int16Array(0));
    expect(socket.sentAudio).toEqual([[1, 0, 2, 0, 3, 0, 4, 0], [9, 8, 7], [0, 0, 0, 0, 0, 0, 0, 0], [0]]);
    session.close();
  });

  test("audio of another type than `start` announced is refused", async () => {
    const session = await open();
    expect(() => session.send(new Float32Array(4))).toThrow("expected pcm_s16le, as start said, got Float32Array");
    session.close();
  });

  test("flush counts its ids; 0 and the empty string are ids too", async () => {
    const session = await open();
    expect([session.flush(), session.flush(""), session.flush(0), session.flush()]).toEqual([0, "", 0, 1]);
    session.close();
  });

  test.each(["stop", "close"] as const)("nothing can be sent after %s", async (end) => {
    const session = await open();
    session[end]();
    for (const act of [() => session.send(new Int16Array(1)), () => session.flush(), () => session.keepalive()]) {
      expect(act).toThrow(UsageError);
    }
    session.close();
  });

  test("a full buffer is an error, not more memory", async () => {
    const session = await open({ maxBufferedBytes: 100 });
    socket.bufferedAmount = 100;
    expect(() => session.send(new Int16Array(1))).toThrow("100 bytes are unsent");
    expect(session.bufferedAmount).toBe(100);
    session.close();
  });

  test("writable waits until the buffer is empty enough", async () => {
    const session = await open({ highWaterBytes: 50 });
    await session.writable();
    socket.bufferedAmount = 50;
    const written = vi.fn();
    const waiting = Promise.all([session.writable(), session.writable()]).then(written);
    await vi.advanceTimersByTimeAsync(100);
    expect(written).not.toHaveBeenCalled();
    socket.bufferedAmount = 49;
    await vi.advanceTimersByTimeAsync(20);
    await waiting;
    session.close();
  });

  test("writable rejects when the session ends first, and after it", async () => {
    const session = await open({ highWaterBytes: 50, resumeBufferS: 0 });
    socket.bufferedAmount = 50;
    const waiting = session.writable();
    socket.emit("close", { code: 1006 });
    await expect(waiting).rejects.toThrow(ConnectionLost);
    await expect(session.writable()).rejects.toThrow(ConnectionLost);
    await expectNothingLeft();
  });
});
