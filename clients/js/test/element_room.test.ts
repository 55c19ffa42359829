import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { CaptionEvent } from "../src/element/events.js";
import { RoomReader, type RoomState } from "../src/element/room_reader.js";

/** The browser's connection to a room, whose answers a test gives. */
class FakeSource {
  static readonly CONNECTING = 0;
  static readonly CLOSED = 2;
  static all: FakeSource[] = [];
  readonly url: URL;
  readyState = FakeSource.CONNECTING;
  onopen = () => {};
  onmessage: (message: { data: string; lastEventId: string }) => void = () => {};
  onerror = () => {};

  constructor(url: URL) {
    this.url = url;
    FakeSource.all.push(this);
  }

  close(): void {
    this.readyState = FakeSource.CLOSED;
  }

  deliver(...events: object[]): void {
    events.forEach((event) => this.onmessage({ data: JSON.stringify(event), lastEventId: "r-7" }));
  }

  fail(isRefused: boolean): void {
    this.readyState = isRefused ? FakeSource.CLOSED : FakeSource.CONNECTING;
    this.onerror();
  }
}

const page = new EventTarget();
let states: RoomState[];
let events: [string, boolean][];
let errors: unknown[];
let status: number;
let reader: RoomReader;

const last = () => FakeSource.all.at(-1) as FakeSource;
const open = (server = "https://server.example") => {
  reader = new RoomReader(new URL(server), "choir 7", {
    onEvent: (event: CaptionEvent, isHistory) => events.push([event.type, isHistory]),
    onState: (state) => states.push(state),
    onError: (error) => errors.push(error),
  });
};

beforeEach(() => {
  vi.useFakeTimers();
  [states, events, errors, status, FakeSource.all] = [[], [], [], 503, []];
  vi.stubGlobal("EventSource", FakeSource);
  vi.stubGlobal("fetch", async () => ({ status }));
  vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
  vi.stubGlobal("removeEventListener", page.removeEventListener.bind(page));
});

afterEach(() => {
  reader.close();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe("RoomReader", () => {
  it("reads the events of a room, first those of its history", () => {
    open("wss://server.example/prefix");
    expect(String(last().url)).toBe("https://server.example/prefix/captions/choir%207/events");
    last().onopen();
    last().deliver({ type: "room", name: "choir 7", live: true }, { type: "stopped" });
    vi.advanceTimersByTime(2_000);
    last().deliver({ type: "lag" });
    expect(states).toEqual(["connecting", "live"]);
    expect(events).toEqual([
      ["room", true],
      ["stopped", true],
      ["lag", false],
    ]);
  });

  it("waits for a speaker who is not there yet", async () => {
    open();
    status = 404;
    last().fail(true);
    await vi.advanceTimersByTimeAsync(500);
    expect([states, FakeSource.all.length]).toEqual([["connecting", "waiting"], 2]);
    last().deliver({ type: "room", name: "choir 7", live: false });
    expect(states).toEqual(["connecting", "waiting", "waiting"]);
  });

  it("connects again after a refusal, less and less often and for hours", async () => {
    open();
    for (let minute = 0; minute < 240; minute++) {
      last().fail(true);
      await vi.advanceTimersByTimeAsync(60_000);
    }
    expect(FakeSource.all.length).toBe(241);
    expect(states.slice(1)).toEqual(Array(240).fill("reconnecting"));
  });

  it("leaves a lost connection to the browser, which remembers the last event", () => {
    open();
    last().fail(false);
    expect([states, FakeSource.all.length]).toEqual([["connecting", "reconnecting"], 1]);
  });

  it("asks for what it has missed, which is no history", () => {
    open();
    last().onopen();
    last().deliver({ type: "room", name: "choir 7", live: true, resumed: false }, { type: "lag" });
    page.dispatchEvent(new Event("online"));
    last().onmessage({ data: '{"type": "lag"}', lastEventId: "" });
    page.dispatchEvent(new Event("online"));
    expect(last().url.search).toBe("?after=r-7");
    last().onopen();
    last().deliver({ type: "room", name: "choir 7", live: true, resumed: true }, { type: "lag" });
    expect(events.map(([, isHistory]) => isHistory)).toEqual([true, true, true, false, false]);
  });

  it("connects as soon as the device is in a network again", () => {
    open();
    const [first] = FakeSource.all;
    page.dispatchEvent(new Event("offline"));
    expect([first?.readyState, states.at(-1)]).toEqual([FakeSource.CLOSED, "reconnecting"]);
    page.dispatchEvent(new Event("online"));
    expect(last().readyState).toBe(FakeSource.CONNECTING);
  });

  it("goes on without a network where the server is on the same device", () => {
    open();
    page.dispatchEvent(new Event("offline"));
    last().deliver({ type: "room", name: "choir 7", live: true, resumed: true });
    expect([states.at(-1), last().readyState]).toEqual(["live", FakeSource.CONNECTING]);
  });

  it("keeps a connection that was made while it asked why there was none", async () => {
    open();
    last().fail(true);
    page.dispatchEvent(new Event("online"));
    last().deliver({ type: "room", name: "choir 7", live: true });
    await vi.advanceTimersByTimeAsync(60_000);
    expect([states, FakeSource.all.length]).toEqual([["connecting", "live"], 2]);
  });

  it("has no connection while the browser keeps the page that the user has left", () => {
    open();
    page.dispatchEvent(new Event("pagehide"));
    expect(last().readyState).toBe(FakeSource.CLOSED);
    page.dispatchEvent(Object.assign(new Event("pageshow"), { persisted: true }));
    expect(FakeSource.all.length).toBe(2);
  });

  it("reports what is no event, and goes on", () => {
    open();
    last().onmessage({ data: "{", lastEventId: "" });
    last().deliver({ type: "segment" }, { type: "lag" });
    expect(errors.map(String)).toEqual([
      expect.stringContaining("expected JSON"),
      expect.stringContaining("segment.utterance: expected a number"),
    ]);
    expect(events.length).toBe(1);
  });

  it("ends with the room", async () => {
    open();
    last().deliver({ type: "ended" });
    page.dispatchEvent(new Event("online"));
    await vi.advanceTimersByTimeAsync(60_000);
    expect([states.at(-1), FakeSource.all.length, last().readyState]).toEqual(["ended", 1, FakeSource.CLOSED]);
  });
});
