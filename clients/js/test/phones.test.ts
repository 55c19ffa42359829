/** What phones do to a session: tunnels, networks that change, pages that come back, and sockets that tell little. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { connect, type Session, type SessionEvent } from "../src/index.js";
import { FakeSocket } from "./fake_socket.js";
import { readAll, STARTED } from "./server_messages.js";

/** One byte is 0.1 s of audio. */
const AUDIO = { encoding: "mulaw", sample_rate: 10 } as const;
const LIMITS = { ...STARTED.limits, max_message_bytes: 1000 };

let sockets: FakeSocket[];
let fetched: ReturnType<typeof vi.fn>;
let page: Page;
/** Whether connections come about. */
let isOnline: boolean;

/** A page that counts its listeners. */
class Page extends EventTarget {
  nListeners = 0;

  override addEventListener(...listener: Parameters<EventTarget["addEventListener"]>): void {
    this.nListeners += 1;
    super.addEventListener(...listener);
  }

  override removeEventListener(...listener: Parameters<EventTarget["removeEventListener"]>): void {
    this.nListeners -= 1;
    super.removeEventListener(...listener);
  }
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, "random").mockReturnValue(1);
  isOnline = true;
  sockets = [];
  fetched = vi.fn(async () => {
    if (!isOnline) {
      throw new TypeError("no network");
    }
    return new Response("", { status: 200 });
  });
  page = new Page();
  vi.stubGlobal("fetch", fetched);
  vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
  vi.stubGlobal("removeEventListener", page.removeEventListener.bind(page));
});

afterEach(() => {
  expect(vi.getTimerCount(), "timers that are left").toBe(0);
  expect(sockets.map((socket) => socket.nListeners)).toEqual(sockets.map(() => 0));
  expect(page.nListeners, "listeners that are left").toBe(0);
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const socket = () => sockets.at(-1) as FakeSocket;

const openSocket = () => {
  const opened = new FakeSocket();
  sockets.push(opened);
  const answer = () => {
    if (isOnline) {
      opened.emit("open");
      opened.deliver({ ...STARTED, limits: LIMITS });
    } else {
      opened.emit("close", { code: 1006 });
    }
  };
  queueMicrotask(answer);
  return opened;
};

async function open(resumeBufferS?: number): Promise<{ session: Session; events: SessionEvent[] }> {
  const session = await connect("http://tutti", { openSocket, start: { audio: AUDIO }, resumeBufferS });
  return { session, events: readAll(session).events };
}

/** The phone records for some time; each byte is the next number. */
async function speak(session: Session, durationS: number, fromByte: number): Promise<void> {
  for (let i = 0; i < durationS * 10; i += 5) {
    session.send(Uint8Array.from({ length: 5 }, (_, index) => (fromByte + i + index) % 256));
    await vi.advanceTimersByTimeAsync(500);
  }
}

const numbers = (n: number) => Array.from({ length: n }, (_, index) => index % 256);

test.each([60, 290])("captions go on through a tunnel of %i s: nothing is lost, and it catches up faster than it was spoken", async (tunnelS) => {
  const { session, events } = await open();
  await speak(session, 10, 0);
  isOnline = false;
  socket().emit("close", { code: 1006 });
  await speak(session, tunnelS, 100);
  const nBefore = sockets.length;
  isOnline = true;
  let caughtUpS = 0;
  while (sockets.length === nBefore || session.bufferedAmount > 0) {
    await vi.advanceTimersByTimeAsync(100);
    caughtUpS += 0.1;
  }
  expect(socket().sentAudio.flat()).toEqual(numbers(100 + tunnelS * 10));
  // 15 s may pass until the next attempt.
  expect(caughtUpS).toBeLessThan(15 + tunnelS);
  expect(events.filter((event) => event.type === "resumed")).toEqual([{ type: "resumed", gap: null }]);
  expect(session.isOpen).toBe(true);
  session.close();
});

test("a tunnel that is longer than what is kept loses its beginning, and says so", async () => {
  const { session, events } = await open(60);
  isOnline = false;
  socket().emit("close", { code: 1006 });
  await speak(session, 90, 0);
  isOnline = true;
  page.dispatchEvent(new Event("online"));
  await vi.advanceTimersByTimeAsync(0);
  expect(events.at(-1)).toEqual({ type: "resumed", gap: [0, 30] });
  session.close();
});

describe("a session that waits for its next attempt", () => {
  test.each([
    ["the browser is online", () => page.dispatchEvent(new Event("online"))],
    ["the page is shown again", () => page.dispatchEvent(new Event("visibilitychange"))],
    ["the application says so", (session: Session) => session.reconnect()],
  ])("connects at once when %s", async (_, news) => {
    const { session, events } = await open();
    isOnline = false;
    socket().emit("close", { code: 1006 });
    await vi.advanceTimersByTimeAsync(60_000);
    const nBefore = sockets.length;
    isOnline = true;
    news(session);
    news(session);
    await vi.advanceTimersByTimeAsync(0);
    expect([sockets.length, events.at(-1)?.type]).toEqual([nBefore + 1, "resumed"]);
    session.close();
    news(session);
    expect(sockets.length).toBe(nBefore + 1);
  });
});

describe("a session whose page begins to be left", () => {
  const hidden = () => page.dispatchEvent(new Event("visibilitychange"));

  test("connects again only when the page has stayed", async () => {
    const { session, events } = await open();
    page.dispatchEvent(new Event("beforeunload"));
    await vi.advanceTimersByTimeAsync(100);
    socket().emit("close", { code: 1001 });
    hidden();
    await vi.advanceTimersByTimeAsync(1899);
    expect([sockets.length, events.map((event) => event.type)]).toEqual([1, ["reconnecting"]]);
    await vi.advanceTimersByTimeAsync(1);
    expect([sockets.length, events.at(-1)?.type]).toEqual([2, "resumed"]);
    session.close();
  });

  test("does not forget that there is a network again", async () => {
    const { session } = await open();
    isOnline = false;
    socket().emit("close", { code: 1006 });
    await vi.advanceTimersByTimeAsync(60_000);
    const nBefore = sockets.length;
    isOnline = true;
    page.dispatchEvent(new Event("beforeunload"));
    page.dispatchEvent(new Event("online"));
    await vi.advanceTimersByTimeAsync(1999);
    expect(sockets.length).toBe(nBefore);
    await vi.advanceTimersByTimeAsync(1);
    expect(sockets.length).toBe(nBefore + 1);
    session.close();
  });
});

test("reconnect gives up the present connection", async () => {
  const { session, events } = await open();
  session.send(Uint8Array.of(1, 2));
  session.reconnect();
  expect(sockets[0]?.closedWith).toBe(4000);
  await vi.advanceTimersByTimeAsync(0);
  expect(socket().sentAudio.flat()).toEqual([1, 2]);
  expect(events.map((event) => event.type)).toEqual(["reconnecting", "resumed"]);
  session.close();
});

describe("a socket that does not tell what the network takes", () => {
  const mute = () => Object.assign(socket(), { bufferedAmount: undefined });

  test("is given up when the server has sent nothing for 15 s and cannot be reached", async () => {
    const { session, events } = await open();
    mute();
    await speak(session, 14, 0);
    expect(fetched).not.toHaveBeenCalled();
    isOnline = false;
    await speak(session, 2, 140);
    expect(fetched.mock.calls[0]?.[0]).toBe("http://tutti/v1/models");
    expect(events[0]).toMatchObject({ type: "reconnecting", reason: expect.stringContaining("cannot be reached") });
    session.close();
    await vi.advanceTimersByTimeAsync(0);
  });

  test("goes on while the server answers, or sends events", async () => {
    const { session, events } = await open();
    mute();
    await speak(session, 40, 0);
    expect(fetched).toHaveBeenCalledTimes(2);
    socket().deliver({ type: "lag", behind_s: 3 });
    await speak(session, 10, 400);
    expect(fetched).toHaveBeenCalledTimes(2);
    expect(events.map((event) => event.type)).toEqual(["lag"]);
    session.close();
  });

  test("goes on where there is no way to ask", async () => {
    vi.stubGlobal("fetch", undefined);
    const { session, events } = await open();
    mute();
    await speak(session, 40, 0);
    expect([events, session.isOpen, session.bufferedAmount]).toEqual([[], true, 0]);
    session.close();
  });
});
