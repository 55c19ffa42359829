import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { connect, type ConnectOptions, ConnectError, type Session } from "../src/index.js";
import { FakeSocket } from "./fake_socket.js";
import { begun, ended, interim, readAll, segment, STARTED, STOPPED } from "./server_messages.js";

/** One byte is 0.1 s of audio: 10 samples of one byte in a second. */
const AUDIO = { encoding: "mulaw", sample_rate: 10 } as const;
const LIMITS = { ...STARTED.limits, max_message_bytes: 1000 };

let sockets: FakeSocket[];
let random: ReturnType<typeof vi.spyOn>;
let fetched: ReturnType<typeof vi.fn>;

beforeEach(() => {
  vi.useFakeTimers();
  random = vi.spyOn(Math, "random").mockReturnValue(0.5);
  fetched = vi.fn(async () => new Response("", { status: 200 }));
  vi.stubGlobal("fetch", fetched);
  sockets = [];
});

afterEach(() => {
  expect(vi.getTimerCount(), "timers that are left").toBe(0);
  expect(sockets.map((socket) => socket.nListeners)).toEqual(sockets.map(() => 0));
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

/** The newest socket. */
function socket(): FakeSocket {
  return sockets.at(-1) as FakeSocket;
}

function accept(limits: object = {}, more: object = {}): void {
  socket().emit("open");
  socket().deliver({ ...STARTED, limits: { ...LIMITS, ...limits }, ...more });
}

const openSocket = (_: string, protocols: string[]) => {
  sockets.push(Object.assign(new FakeSocket(), { protocols }));
  return socket();
};

/** @param started further fields of the server's answer. */
async function open(options: ConnectOptions = {}, started: object = {}): Promise<Session> {
  const connecting = connect("http://tutti", { openSocket, ...options, start: { audio: AUDIO, ...options.start } });
  await settle();
  accept({}, started);
  return connecting;
}

const lose = (code = 1006) => socket().emit("close", { code });
const bytes = (first: number, n: number) => Uint8Array.from({ length: n }, (_, index) => first + index);
const audioOf = ({ sentAudio }: FakeSocket) => sentAudio.flat();
const typesOf = ({ sentText }: FakeSocket) => sentText.map((message) => (message as { type: string }).type);
const settle = () => vi.advanceTimersByTimeAsync(0);

/** The first wait is 250 ms, as half of the longest one is drawn. */
const reconnect = async () => {
  await vi.advanceTimersByTimeAsync(250);
  accept();
};

test("a lost session goes on in its room", async () => {
  const room = { name: "choir-7", path: "/captions/choir-7", token: "q1w2e3" };
  const session = await open({ start: { room: { title: "Sunday" } } }, { room });
  expect(session.started.room?.path).toBe("/captions/choir-7");
  const { end } = readAll(session);
  lose();
  await reconnect();
  expect(socket().sentText[0]).toMatchObject({ room: { name: "choir-7", token: "q1w2e3", title: "Sunday" } });
  session.close();
  await end;
});

test("a lost session goes on: its audio is sent again from where its text is not final, as one stream of events", async () => {
  const session = await open({ start: { language: "en", prompt: "Kowalski" } });
  const { events, end } = readAll(session);
  session.send(bytes(0, 40));
  socket().deliver(begun(0, 0), segment(0, 0, "One."), ended(0, 0, "One.", 1.5));
  socket().deliver(begun(1, 2), interim(1, 2, "Two three"));
  lose();
  expect(session.isOpen).toBe(true);
  session.send(bytes(40, 5));
  await vi.advanceTimersByTimeAsync(249);
  expect(sockets.length).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  accept();
  expect(socket().sentText[0]).toEqual({
    type: "start",
    audio: AUDIO,
    language: "en",
    prompt: "Kowalski",
    resumes: true,
    resume: { from_s: 1.5, audio_from_s: 0 },
  });
  expect(audioOf(socket())).toEqual([...bytes(0, 45)]);
  session.send(bytes(45, 1));
  expect(audioOf(socket()).at(-1)).toBe(45);
  socket().deliver(begun(0, 2), interim(0, 2, "Two three four"), segment(0, 2, "Two three four."));
  socket().deliver(ended(0, 2, "Two three four.", 4));
  session.stop();
  socket().deliver(STOPPED);
  expect(await end).toBeUndefined();
  expect(events.map((event) => event.type)).toEqual([
    "speech_started",
    "segment",
    "utterance",
    "speech_started",
    "interim",
    "reconnecting",
    "resumed",
    "interim",
    "segment",
    "utterance",
    "stopped",
  ]);
  expect(events[5]).toEqual({
    type: "reconnecting",
    attempt: 1,
    reason: "the connection was lost (1006)",
    retry_in_s: 0.25,
  });
  expect(events[6]).toEqual({ type: "resumed", gap: null });
  expect(events[8]).toMatchObject({ utterance: 1, id: 1, text: "Two three four." });
  expect(session.finalUntilS).toBe(4);
});

test("a session that began with audio before its text goes on at the same times", async () => {
  const session = await open({ start: { resume: { from_s: 10, audio_from_s: 5 } } });
  const { events, end } = readAll(session);
  session.send(bytes(0, 60));
  lose();
  await reconnect();
  expect(socket().sentText[0]).toMatchObject({ resume: { from_s: 10, audio_from_s: 5 } });
  expect(audioOf(socket())).toEqual([...bytes(0, 60)]);
  session.stop();
  socket().deliver({ ...STOPPED, audio_s: 6 });
  expect(await end).toBeUndefined();
  expect(events.at(-1)).toMatchObject({ type: "stopped", audio_s: 6 });
});

test("10 s of final audio are sent before the rest, for the speech detector", async () => {
  const session = await open();
  session.send(bytes(0, 250));
  socket().deliver(ended(0, 0, "", 15), ended(1, 16, "", 20));
  lose();
  await reconnect();
  expect(socket().sentText[0]).toMatchObject({ resume: { from_s: 20, audio_from_s: 10 } });
  expect(audioOf(socket())).toEqual([...bytes(100, 150)]);
  session.close();
});

test("a time for each channel is sent once the server has named them", async () => {
  const session = await open({ start: { audio: { ...AUDIO, channels: 2 } } });
  session.send(bytes(0, 40));
  lose();
  await reconnect();
  expect(socket().sentText[0]).toMatchObject({ resume: { from_s: 0 } });
  socket().deliver({ ...ended(0, 0, "", 1), resume_from_s: [1, 1.5] });
  expect([session.resumeFromS, session.finalUntilS]).toEqual([[1, 1.5], 1]);
  lose();
  await reconnect();
  expect(socket().sentText[0]).toMatchObject({ resume: { from_s: [1, 1.5], audio_from_s: 0 } });
  expect(audioOf(socket())).toEqual([...bytes(0, 40)]);
  session.close();
});

test("the audio that the server's speech detector needs is sent again, and no more, and the language that it detected", async () => {
  const session = await open();
  const { end } = readAll(session);
  session.send(bytes(0, 250));
  socket().deliver(begun(0, 0), { ...ended(0, 0, "", 20), detector_from_s: [14], language: "de", language_probability: 0.9 });
  lose();
  await reconnect();
  const first = socket().sentText[0] as { resume: object };
  expect(first.resume).toEqual({ from_s: 20, audio_from_s: 14, detector_from_s: [14], language: ["de"] });
  expect(audioOf(socket())).toEqual([...bytes(140, 110)]);
  socket().deliver({ ...ended(0, 22, "", 24), detector_from_s: [null], voices: "v1.1.AA" });
  lose();
  await reconnect();
  const second = socket().sentText[0] as { resume: object };
  expect(second.resume).toEqual({ from_s: 24, audio_from_s: 14, voices: "v1.1.AA", language: ["de"] });
  session.close();
  await end;
});

test("at most 64 flushes wait for their answers; the others are sent as answers come", async () => {
  const session = await open();
  const { end } = readAll(session);
  const flushes = () => typesOf(socket()).filter((type) => type === "flush").length;
  lose();
  for (let id = 0; id < 66; id++) {
    session.send(bytes(id, 1));
    session.flush(id);
  }
  session.stop();
  await reconnect();
  expect([flushes(), audioOf(socket()).length]).toEqual([64, 65]);
  await vi.advanceTimersByTimeAsync(1000);
  socket().deliver({ type: "flushed", id: 0 });
  expect([flushes(), audioOf(socket()).length]).toEqual([65, 66]);
  expect(typesOf(socket())).not.toContain("stop");
  socket().deliver({ type: "flushed", id: 1 });
  expect(flushes()).toBe(66);
  expect(typesOf(socket()).at(-1)).toBe("stop");
  session.close();
  await end;
});

test("flushes that are not answered are sent again at their places", async () => {
  const session = await open();
  session.flush("a");
  session.send(bytes(0, 4));
  session.flush("b");
  session.send(bytes(4, 4));
  session.flush("c");
  socket().deliver(ended(0, 0, "", 0.2), { type: "flushed", id: "a" });
  lose();
  session.flush("d");
  session.send(bytes(8, 2));
  const sent: unknown[] = [];
  await vi.advanceTimersByTimeAsync(250);
  vi.spyOn(socket(), "send").mockImplementation((data) => {
    sent.push(typeof data === "string" ? (JSON.parse(data) as { id?: string }).id : [...(data as Uint8Array)]);
  });
  accept();
  expect(sent).toEqual([undefined, [0, 1, 2, 3], "b", [4, 5, 6, 7], "c", "d", [8, 9]]);
  session.close();
});

test("audio that does not fit into the buffer is reported as a gap", async () => {
  const session = await open({ resumeBufferS: 60 });
  const { events } = readAll(session);
  session.send(bytes(0, 100));
  socket().deliver(begun(0, 3), interim(0, 3, "One"));
  lose();
  session.send(new Uint8Array(350));
  session.send(new Uint8Array(250));
  await reconnect();
  expect(socket().sentText[0]).toMatchObject({ resume: { from_s: 10 } });
  expect(audioOf(socket())).toEqual(Array.from({ length: 600 }, () => 0));
  await settle();
  expect(events.slice(-3)).toMatchObject([
    { type: "resumed", gap: [0, 10] },
    { type: "segment", utterance: 0, text: "One" },
    { type: "utterance", utterance: 0, text: "One" },
  ]);
  session.close();
});

test.each([-1, 1, 59, Number.NaN])("a buffer of %d s is refused", async (resumeBufferS) => {
  await expect(connect("http://tutti", { openSocket, resumeBufferS })).rejects.toMatchObject({ code: "bad_option" });
});

test("stop during an outage is sent after the audio, and the loop ends after stopped", async () => {
  const session = await open();
  const { end } = readAll(session);
  session.send(bytes(0, 3));
  lose();
  session.stop();
  expect(session.isOpen).toBe(false);
  await reconnect();
  expect([audioOf(socket()), typesOf(socket())]).toEqual([
    [0, 1, 2],
    ["start", "stop"],
  ]);
  socket().deliver(STOPPED);
  expect(await end).toBeUndefined();
});

test("a session that is lost after stop is stopped again", async () => {
  const session = await open({ stopTimeoutMs: 700 });
  const { end } = readAll(session);
  session.send(bytes(0, 3));
  session.stop();
  lose();
  await reconnect();
  expect(typesOf(socket())).toEqual(["start", "stop"]);
  await vi.advanceTimersByTimeAsync(700);
  expect(await end).toMatchObject({ code: "stop_timeout" });
});

describe("which ends are resumed", () => {
  test.each([1001, 1005, 1006, 1011, 1012, 1013, 1014])("close %i is", async (code) => {
    const session = await open();
    lose(code);
    await reconnect();
    expect(session.isOpen).toBe(true);
    session.close();
  });

  test.each(["draining", "engine_failed", "engine_stalled", "no_engine", "overloaded", "session_limit"])("error %s is", async (code) => {
    const session = await open();
    socket().deliver({ type: "error", code, message: "…", fatal: true });
    await reconnect();
    expect(session.isOpen).toBe(true);
    session.close();
  });

  test.each([1000, 1002, 1008, 1009])("close %i is not", async (code) => {
    const { end } = readAll(await open());
    lose(code);
    expect(await end).toMatchObject({ code: "connection_lost", closeCode: code });
  });

  test.each(["too_fast", "slow_reader", "bad_start"])("error %s is not", async (code) => {
    const { end } = readAll(await open());
    socket().deliver({ type: "error", code, message: "…", fatal: true });
    expect(await end).toMatchObject({ name: "SessionError", code });
  });

  test("a key that is refused now is not", async () => {
    const session = await open({ apiKey: "k" });
    const { end } = readAll(session);
    lose();
    await vi.advanceTimersByTimeAsync(250);
    fetched.mockResolvedValue(new Response("", { status: 401 }));
    lose();
    await vi.advanceTimersByTimeAsync(500);
    expect(await end).toBeInstanceOf(ConnectError);
    expect(await end).toMatchObject({ code: "unauthorized" });
    expect(fetched.mock.calls[0]).toMatchObject(["http://tutti/v1/models", { headers: { authorization: "Bearer k" } }]);
  });
});

describe("a session whose key is valid for minutes", () => {
  /** The server refuses all keys but the newest, also over HTTP. */
  async function openWith(apiKey: () => string | Promise<string>, options: ConnectOptions = {}): Promise<Session> {
    fetched.mockResolvedValue(new Response("", { status: 401 }));
    return open({ apiKey, ...options });
  }

  test("resumes with a new one, also after failed attempts", async () => {
    let nKeys = 0;
    const session = await openWith(async () => `secret-${++nKeys}`);
    session.send(bytes(0, 2));
    lose();
    await vi.advanceTimersByTimeAsync(250);
    lose();
    await vi.advanceTimersByTimeAsync(500);
    accept();
    expect(sockets.map(({ protocols }) => protocols[1])).toEqual([1, 2, 3].map((n) => `tutti.key.secret-${n}`));
    expect([session.isOpen, audioOf(socket())]).toEqual([true, [0, 1]]);
    session.close();
  });

  test("asks again when it gets none, as what it has lost may be the network", async () => {
    const key = vi.fn(async () => "secret");
    const session = await openWith(key);
    const { events } = readAll(session);
    key.mockRejectedValueOnce(new TypeError("Failed to fetch")).mockReturnValueOnce(new Promise(() => {}));
    lose();
    await vi.advanceTimersByTimeAsync(250 + 500 + 10_000 + 1000);
    accept();
    const reasons = events.map((event) => (event.type === "reconnecting" ? event.reason : event.type));
    expect(reasons.slice(1, 3)).toEqual(["apiKey: TypeError: Failed to fetch", "apiKey: Error: no answer within 10000 ms"]);
    expect([sockets.length, session.isOpen]).toEqual([2, true]);
    session.close();
  });

  test("ends with the reason when it gets none for too long", async () => {
    const key = vi.fn(async () => "secret");
    const { end } = readAll(await openWith(key, { resumeTimeoutMs: 2000 }));
    const cause = new Error("logged out");
    key.mockRejectedValue(cause);
    lose();
    await vi.advanceTimersByTimeAsync(2000);
    expect(await end).toMatchObject({ name: "ConnectError", code: "no_api_key", cause });
  });

  test("opens no connection when it was closed before the key came", async () => {
    let give: (key: string) => void = () => {};
    const key = vi.fn((): string | Promise<string> => "secret");
    const session = await openWith(key);
    key.mockReturnValue(new Promise<string>((resolve) => (give = resolve)));
    lose();
    await vi.advanceTimersByTimeAsync(250);
    session.close();
    give("late");
    await settle();
    expect([key.mock.calls.length, sockets.length]).toEqual([2, 1]);
  });
});

test.each([
  ["audio", (session: Session) => session.send(bytes(2, 1)), [0, 1, 2], ["start"]],
  ["a flush", (session: Session) => session.flush("a"), [0, 1], ["start", "flush"]],
  ["stop", (session: Session) => session.stop(), [0, 1], ["start", "stop"]],
])("a session that ended because nothing came goes on with %s", async (_, act, audio, commands) => {
  const session = await open();
  session.send(bytes(0, 2));
  await vi.advanceTimersByTimeAsync(60_000);
  socket().deliver(ended(0, 0, "", 0.2), { type: "error", code: "idle", message: "…", fatal: true });
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect([sockets.length, session.isOpen]).toEqual([1, true]);
  act(session);
  await reconnect();
  expect(socket().sentText[0]).toMatchObject({ resume: { from_s: 0.2 } });
  expect([audioOf(socket()), typesOf(socket())]).toEqual([audio, commands]);
  session.close();
});

test.each([
  ["audio", (session: Session) => session.send(bytes(2, 1)), 0],
  ["a flush without an answer", (session: Session) => session.flush("a"), 60_000],
  ["stop", (session: Session) => session.stop(), 60_000],
])("a session whose network has lost %s goes on at once after the server heard nothing", async (_, act, silentMs) => {
  const session = await open({ stopTimeoutMs: 3_600_000 });
  session.send(bytes(0, 2));
  act(session);
  await vi.advanceTimersByTimeAsync(silentMs);
  socket().deliver({ type: "error", code: "idle", message: "…", fatal: true });
  await reconnect();
  expect(sockets.length).toBe(2);
  expect(typesOf(socket())[0]).toBe("start");
  session.close();
});

test("waits between attempts are drawn from a time that doubles, up to a limit, until the time is over", async () => {
  random.mockReturnValue(1);
  fetched.mockRejectedValue(new TypeError("no network"));
  const session = await open({ resumeTimeoutMs: 40_000 });
  const { events, end } = readAll(session);
  while (session.isOpen) {
    lose();
    await vi.advanceTimersToNextTimerAsync();
  }
  expect(await end).toMatchObject({ code: "connection_lost" });
  const waits = events.map((event) => (event.type === "reconnecting" ? [event.attempt, event.retry_in_s] : event.type));
  expect(waits).toEqual([
    [1, 0.5],
    [2, 1],
    [3, 2],
    [4, 4],
    [5, 8],
    [6, 15],
    [7, 9.5],
  ]);
});

test("an attempt without an answer is followed by another one", async () => {
  const session = await open({ timeoutMs: 1000 });
  lose();
  await vi.advanceTimersByTimeAsync(1250);
  expect(sockets.map((each) => each.closedWith)).toEqual([undefined, 1000]);
  await vi.advanceTimersByTimeAsync(500);
  accept();
  expect([sockets.length, session.isOpen]).toEqual([3, true]);
  session.close();
});

test("the time limit begins anew when a connection has lasted", async () => {
  const session = await open({ resumeTimeoutMs: 2_000 });
  for (let i = 0; i < 3; i++) {
    lose();
    await reconnect();
    await vi.advanceTimersByTimeAsync(10_000);
  }
  expect(session.isOpen).toBe(true);
  session.close();
});

test("a long replay does not get ahead of the clock further than the server allows", async () => {
  const session = await open({ resumeBufferS: 400, start: { endpointing: { max_utterance_s: 30 } } });
  // 0.8 of the allowance: 60 s ahead, 30 s of the longest utterance and 30 s more.
  const allowedS = 96;
  for (let i = 0; i < 150; i++) {
    session.send(new Uint8Array(10));
  }
  lose();
  await vi.advanceTimersByTimeAsync(250);
  accept();
  const began = performance.now();
  let aheadS = 0;
  let at = began;
  let nSent = 0;
  expect(audioOf(socket()).length).toBe(allowedS * 10);
  while (audioOf(socket()).length < 1500) {
    aheadS = Math.max(0, aheadS - ((performance.now() - at) / 1000) * 1.5) + (audioOf(socket()).length - nSent) / 10;
    at = performance.now();
    nSent = audioOf(socket()).length;
    expect(aheadS).toBeLessThanOrEqual(allowedS + 0.001);
    expect(session.bufferedAmount).toBe(1500 - nSent);
    await vi.advanceTimersToNextTimerAsync();
  }
  expect((performance.now() - began) / 1000).toBeLessThan((150 - allowedS) / 1.5 + 2);
  session.close();
});

test("audio that is not final stays, however small the buffer, while a connection has not got it", async () => {
  const session = await open({ resumeBufferS: 100 });
  session.send(new Uint8Array(1000).fill(1));
  lose();
  await vi.advanceTimersByTimeAsync(250);
  accept({ max_ahead_s: 0 });
  // 72 s may be sent at once; meanwhile more comes.
  for (let i = 0; i < 100; i++) {
    session.send(new Uint8Array(10).fill(2));
  }
  await vi.advanceTimersByTimeAsync(120_000);
  const sent = audioOf(socket());
  expect([sent.length, sent.filter((byte) => byte === 1).length]).toEqual([2000, 1000]);
  session.close();
});

test("a network that takes nothing is a lost connection", async () => {
  const session = await open();
  const sendUnsent = (first: number) => {
    session.send(bytes(first, 4));
    socket().bufferedAmount += 4;
  };
  sendUnsent(0);
  sendUnsent(4);
  // The network takes a little: the time begins anew.
  await vi.advanceTimersByTimeAsync(9_000);
  socket().bufferedAmount -= 1;
  sendUnsent(8);
  await vi.advanceTimersByTimeAsync(9_999);
  sendUnsent(12);
  expect(socket().closedWith).toBeUndefined();
  await vi.advanceTimersByTimeAsync(1);
  session.send(bytes(16, 4));
  expect(socket().closedWith).toBe(4000);
  await reconnect();
  expect(audioOf(socket())).toEqual([...bytes(0, 20)]);
  session.close();
});

test.each(["close", "abort"])("%s ends an outage", async (way) => {
  const controller = new AbortController();
  const session = await open({ signal: controller.signal });
  const { end } = readAll(session);
  lose();
  if (way === "close") {
    session.close();
    expect(await end).toBeUndefined();
  } else {
    controller.abort();
    expect(await end).toMatchObject({ code: "aborted" });
  }
});

test("writable waits for a connection when much is unsent", async () => {
  const session = await open({ highWaterBytes: 5 });
  lose();
  session.send(bytes(0, 4));
  await session.writable();
  session.send(bytes(4, 4));
  const written = vi.fn();
  const waiting = session.writable().then(written);
  await vi.advanceTimersByTimeAsync(100);
  expect(written).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(150);
  accept();
  await vi.advanceTimersByTimeAsync(20);
  await waiting;
  session.close();
});
