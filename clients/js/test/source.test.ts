import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type ConnectOptions, MicrophoneError, record, type Session } from "../src/index.js";
import { FakeSocket } from "./fake_socket.js";
import { FakeSource } from "./fake_source.js";
import { readAll, STOPPED } from "./server_messages.js";

let socket: FakeSocket;
let source: FakeSource;

beforeEach(() => {
  vi.useFakeTimers();
  socket = new FakeSocket();
  source = new FakeSource();
});

afterEach(() => {
  expect(vi.getTimerCount(), "timers that are left").toBe(0);
  expect(source.nStops, "the source is released").toBeGreaterThan(0);
  vi.useRealTimers();
});

const begin = (options: ConnectOptions = {}) => record("http://tutti", source, { openSocket: socket.open, ...options });

async function open(options: ConnectOptions = {}): Promise<Session> {
  const connecting = begin(options);
  socket.accept();
  return connecting;
}

const typesSent = () => socket.sentText.map((message) => (message as { type: string }).type);

test("a source that does not begin closes its session, too", async () => {
  source.start = () => {
    throw new TypeError("no microphone");
  };
  await expect(open()).rejects.toThrow("no microphone");
  expect(socket.closedWith).toBe(1000);
});

test("the session says what audio it is, sends it from the beginning, and delivers the last of it before stop", async () => {
  const session = await open({ start: { language: "en" } });
  expect(socket.sentText[0]).toMatchObject({
    language: "en",
    audio: { encoding: "pcm_s16le", sample_rate: 8000, channels: 1 },
  });
  const { events, end } = readAll(session);
  source.onChunk?.(Int16Array.of(1, 2));
  source.onState?.("interrupted");
  source.onState?.("live");
  source.rest = Int16Array.of(3);
  session.stop();
  expect([session.isOpen, typesSent()]).toEqual([false, ["start"]]);
  await vi.advanceTimersByTimeAsync(0);
  expect(socket.sentAudio).toEqual([[1, 0, 2, 0], [3, 0]]);
  expect([typesSent(), source.state]).toEqual([["start", "stop"], "stopped"]);
  source.onChunk?.(Int16Array.of(4));
  socket.deliver(STOPPED);
  expect(await end).toBeUndefined();
  expect(socket.sentAudio.length).toBe(2);
  expect(events.slice(0, 2)).toEqual([
    { type: "source", state: "interrupted" },
    { type: "source", state: "live" },
  ]);
});

test("a source that does not deliver its last audio is stopped after a second", async () => {
  source.onFlush = new Promise(() => {});
  const session = await open();
  session.stop();
  await vi.advanceTimersByTimeAsync(999);
  expect(typesSent()).toEqual(["start"]);
  await vi.advanceTimersByTimeAsync(1);
  expect(typesSent()).toEqual(["start", "stop"]);
  session.close();
});

test("a source that is lost ends the session with its error, after the rest of the text", async () => {
  const { events, end } = readAll(await open());
  const error = new MicrophoneError("permission_denied", "the user has withdrawn it");
  source.onLost?.(error);
  await vi.advanceTimersByTimeAsync(0);
  expect(typesSent()).toEqual(["start", "stop"]);
  socket.deliver(STOPPED);
  expect(await end).toBe(error);
  expect(events).toEqual([STOPPED]);
});

test("a source that the network cannot follow ends the session", async () => {
  const { end } = readAll(await open({ maxBufferedBytes: 2 }));
  socket.bufferedAmount = 2;
  source.onChunk?.(Int16Array.of(1));
  expect(await end).toMatchObject({ code: "send_buffer_full" });
});

test.each([
  ["another encoding", { encoding: "mulaw" }],
  ["another sample rate", { sample_rate: 16_000 }],
  ["two channels", { channels: 2 }],
] as const)("%s in start is a mistake", async (_, audio) => {
  await expect(begin({ start: { audio } })).rejects.toMatchObject({ code: "bad_option" });
});

test("a session that is not opened releases its source", async () => {
  await expect(record("ftp://tutti", source)).rejects.toMatchObject({ code: "bad_url" });
  expect(source.nStops).toBe(1);
  const connecting = begin();
  socket.emit("close", { code: 1006 });
  await expect(connecting).rejects.toMatchObject({ code: "connect_failed" });
});
