import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  AbortedError,
  MicrophoneError,
  type MicrophoneOptions,
  type MicrophoneState,
  openMicrophone,
} from "../src/index.js";

class FakeTrack {
  isStopped = false;
  readyState = "live";
  muted = false;
  onended: (() => void) | null = null;
  onmute: (() => void) | null = null;
  onunmute: (() => void) | null = null;
  stop(): void {
    this.isStopped = true;
  }
  /** The device is disconnected, or the permission withdrawn. */
  end(): void {
    this.readyState = "ended";
    this.onended?.();
  }
  mute(muted: boolean): void {
    this.muted = muted;
    (muted ? this.onmute : this.onunmute)?.();
  }
}

const streamOf = (track: FakeTrack) => ({ getTracks: () => [track], getAudioTracks: () => [track] });

class FakeContext extends EventTarget {
  static made: FakeContext[] = [];
  static defaultRate = 44_100;
  readonly sampleRate: number;
  isClosed = false;
  state = "running";
  /** Whether the browser allows the audio to go on. */
  canResume = true;
  readonly sources: { connect: () => void; disconnect: ReturnType<typeof vi.fn> }[] = [];
  audioWorklet = { addModule: vi.fn(async () => {}) };
  constructor(options?: { sampleRate: number }) {
    super();
    this.sampleRate = options?.sampleRate ?? FakeContext.defaultRate;
    FakeContext.made.push(this);
  }
  resume = async () => {
    if (!this.canResume) {
      throw new DOMException("no gesture", "NotAllowedError");
    }
    this.change("running");
  };
  change(state: string): void {
    if (state !== this.state) {
      this.state = state;
      this.dispatchEvent(new Event("statechange"));
    }
  }
  close = async () => {
    this.isClosed = true;
  };
  destination = {};
  createMediaStreamSource = () => {
    this.sources.push({ connect: () => {}, disconnect: vi.fn() });
    return this.sources.at(-1);
  };
}

class FakeNode {
  static last: FakeNode;
  /** Answers a flush at once; the real audio thread answers soon. */
  port = {
    onmessage: null as ((message: { data: Int16Array }) => void) | null,
    postMessage: () => {
      this.port.onmessage?.({ data: new Int16Array(3) });
      this.port.onmessage?.({ data: new Int16Array(0) });
    },
  };
  constructor() {
    FakeNode.last = this;
  }
  connect(): void {}
  disconnect(): void {}
}

/** A lock that keeps the screen on. */
class FakeLock extends EventTarget {
  isReleased = false;
  release = async () => {
    this.isReleased = true;
    this.dispatchEvent(new Event("release"));
  };
}

class FakeDocument extends EventTarget {
  visibilityState = "visible";
  show(state: "visible" | "hidden"): void {
    this.visibilityState = state;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

let track: FakeTrack;
let page: FakeDocument;
let devices: EventTarget;
let locks: FakeLock[];
let getUserMedia: ReturnType<typeof vi.fn<() => Promise<unknown>>>;

beforeEach(() => {
  track = new FakeTrack();
  FakeContext.made = [];
  FakeContext.defaultRate = 44_100;
  page = new FakeDocument();
  locks = [];
  getUserMedia = vi.fn(async () => streamOf(track));
  devices = Object.assign(new EventTarget(), { getUserMedia: () => getUserMedia() });
  const request = async () => {
    locks.push(new FakeLock());
    return locks.at(-1);
  };
  vi.stubGlobal("navigator", { mediaDevices: devices, wakeLock: { request } });
  vi.stubGlobal("document", page);
  vi.stubGlobal("AudioContext", FakeContext);
  vi.stubGlobal("AudioWorkletNode", FakeNode);
});

afterEach(() => {
  vi.unstubAllGlobals();
});

test("records at the rate of the context, and releases everything on stop", async () => {
  const microphone = await openMicrophone();
  expect(microphone.sampleRate).toBe(44_100);
  const chunks: number[] = [];
  microphone.start((samples) => chunks.push(samples.length));
  FakeNode.last.port.onmessage?.({ data: new Int16Array(4410) });
  await microphone.flush();
  microphone.stop();
  microphone.stop();
  expect(chunks).toEqual([4410, 3]);
  expect([track.isStopped, FakeContext.made[0]?.isClosed]).toEqual([true, true]);
});

test("a context that is too fast for the server is opened again at 48 kHz", async () => {
  FakeContext.defaultRate = 96_000;
  const microphone = await openMicrophone();
  expect(microphone.sampleRate).toBe(48_000);
  expect(FakeContext.made.map((context) => context.isClosed)).toEqual([true, false]);
  microphone.stop();
});

/** Opens a microphone and starts it; `seen` collects its states. */
async function started(options: MicrophoneOptions = {}) {
  const microphone = await openMicrophone(options);
  const seen: MicrophoneState[] = [];
  const lost = vi.fn();
  microphone.start(() => {}, lost, (state) => seen.push(state));
  return { microphone, seen, lost, context: FakeContext.made.at(-1) as FakeContext };
}

/** Loads the worklet of contexts that are made from now on in this way. */
function useWorklet(addModule: FakeContext["audioWorklet"]["addModule"]): void {
  vi.stubGlobal("AudioContext", class extends FakeContext {
    override audioWorklet = { addModule };
  });
}

/** Lets promises that are settled already have their effect. */
const settle = () => new Promise((resolve) => setTimeout(resolve));

test("a context that the browser suspends is reported at once, and resumed", async () => {
  const { microphone, seen, context } = await started();
  expect(microphone.state).toBe("live");
  context.change("suspended");
  expect(seen[0]).toBe("suspended");
  await settle();
  expect([seen, microphone.state]).toEqual([["suspended", "live"], "live"]);
  microphone.stop();
  expect(seen.at(-1)).toBe("stopped");
});

test.each([
  ["the page is visible again", () => page.show("visible")],
  ["the user touches the page", () => page.dispatchEvent(new Event("pointerup"))],
  ["the user presses a key", () => page.dispatchEvent(new Event("keydown"))],
])("an interrupted context is resumed when %s", async (_, news) => {
  const { microphone, seen, context } = await started();
  context.canResume = false;
  context.change("interrupted");
  context.change("suspended");
  await settle();
  expect(seen).toEqual(["interrupted", "suspended"]);
  context.canResume = true;
  news();
  await settle();
  expect(microphone.state).toBe("live");
  microphone.stop();
});

test("an interruption is left to the system until the user is back", async () => {
  const { microphone, context } = await started();
  const resume = vi.spyOn(context, "resume");
  context.change("interrupted");
  devices.dispatchEvent(new Event("devicechange"));
  page.show("hidden");
  expect([resume.mock.calls.length, microphone.state]).toEqual([0, "interrupted"]);
  page.show("visible");
  expect(resume.mock.calls.length).toBe(1);
  await settle();
  expect(microphone.state).toBe("live");
  microphone.stop();
});

describe("a microphone that says it is live", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    expect(vi.getTimerCount(), "timers that are left").toBe(0);
    vi.useRealTimers();
  });
  const chunk = () => FakeNode.last.port.onmessage?.({ data: new Int16Array(4410) });

  test("and gives no audio gets a new context of the same sample rate", async () => {
    const { microphone, seen, context } = await started();
    await vi.advanceTimersByTimeAsync(4_000);
    chunk();
    await vi.advanceTimersByTimeAsync(4_000);
    expect(FakeContext.made.length).toBe(1);
    FakeContext.defaultRate = 48_000;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(seen).toEqual(["suspended", "live"]);
    expect(FakeContext.made.map(({ sampleRate, isClosed }) => [sampleRate, isClosed])).toEqual([
      [44_100, true],
      [44_100, false],
    ]);
    expect(track.isStopped).toBe(false);
    chunk();
    context.change("closed");
    expect(microphone.state).toBe("live");
    await vi.advanceTimersByTimeAsync(4_000);
    expect(FakeContext.made.length).toBe(2);
    microphone.stop();
    expect(FakeContext.made[1]?.isClosed).toBe(true);
  });

  test("gets it also where the time to open the microphone is over", async () => {
    const controller = new AbortController();
    const { microphone, seen } = await started({ signal: controller.signal });
    controller.abort();
    await vi.advanceTimersByTimeAsync(5_000);
    expect(seen).toEqual(["suspended", "live"]);
    microphone.stop();
  });

  test("is left alone while the page is hidden", async () => {
    const { microphone } = await started();
    page.show("hidden");
    await vi.advanceTimersByTimeAsync(60_000);
    expect(FakeContext.made.length).toBe(1);
    microphone.stop();
  });

  test("and cannot be repaired is tried again", async () => {
    const { microphone } = await started();
    const addModule = vi.fn().mockRejectedValue(new TypeError("the network is down"));
    useWorklet(addModule);
    await vi.advanceTimersByTimeAsync(15_000);
    expect(addModule).toHaveBeenCalledTimes(3);
    expect(FakeContext.made.map((context) => context.isClosed)).toEqual([false, true, true, true]);
    microphone.stop();
  });

  test("and waits for its worklet without end is tried again", async () => {
    const { microphone } = await started();
    const addModule = vi.fn(() => new Promise<void>(() => {}));
    useWorklet(addModule);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(addModule).toHaveBeenCalledTimes(2);
    microphone.stop();
    await vi.advanceTimersByTimeAsync(10_000);
  });
});

test("a muted track is reported, also when it is muted from the beginning", async () => {
  track.muted = true;
  const { microphone, seen } = await started();
  expect(seen).toEqual(["muted"]);
  track.mute(false);
  track.mute(true);
  expect(seen).toEqual(["muted", "live", "muted"]);
  microphone.stop();
});

test("a device that is disconnected is replaced by another one", async () => {
  const { microphone, seen, lost, context } = await started();
  const other = new FakeTrack();
  getUserMedia.mockResolvedValue(streamOf(other));
  track.end();
  expect(seen).toEqual(["disconnected"]);
  await settle();
  expect(seen).toEqual(["disconnected", "live"]);
  expect(context.sources.map((source) => source.disconnect.mock.calls.length)).toEqual([1, 0]);
  microphone.stop();
  expect([other.isStopped, lost.mock.calls]).toEqual([true, []]);
});

test("without another device, the microphone waits until one is plugged in", async () => {
  const { microphone, seen } = await started();
  getUserMedia.mockRejectedValue(new DOMException("none", "NotFoundError"));
  track.end();
  await settle();
  getUserMedia.mockResolvedValue(streamOf(new FakeTrack()));
  devices.dispatchEvent(new Event("devicechange"));
  await settle();
  expect(seen).toEqual(["disconnected", "live"]);
  microphone.stop();
});

test.each<[string, () => Promise<unknown>]>([
  [
    "comes while another one is looked for in vain",
    async () => {
      devices.dispatchEvent(new Event("devicechange"));
      throw new DOMException("none", "NotFoundError");
    },
  ],
  ["takes the place of one that goes while it is opened", async () => streamOf(Object.assign(new FakeTrack(), { readyState: "ended" }))],
])("a device that %s is used", async (_, first) => {
  const { microphone, seen } = await started();
  getUserMedia.mockImplementationOnce(first).mockResolvedValue(streamOf(new FakeTrack()));
  track.end();
  await settle();
  expect(seen).toEqual(["disconnected", "live"]);
  microphone.stop();
});

test("a permission that is withdrawn stops the microphone, and is reported once", async () => {
  const { microphone, seen, lost } = await started();
  getUserMedia.mockRejectedValue(new DOMException("no", "NotAllowedError"));
  track.end();
  await settle();
  devices.dispatchEvent(new Event("devicechange"));
  await settle();
  expect(seen).toEqual(["disconnected", "stopped"]);
  expect(lost.mock.calls).toEqual([[expect.objectContaining({ code: "permission_denied" })]]);
  microphone.stop();
});

test("another source of sound is opened instead of a microphone, and says when it has ended", async () => {
  const openStream = vi.fn(async () => streamOf(track) as unknown as MediaStream);
  const microphone = await openMicrophone({ openStream });
  const lost = vi.fn();
  microphone.start(() => {}, lost);
  openStream.mockRejectedValue(new MicrophoneError("permission_denied", "the tab was closed"));
  track.end();
  await settle();
  expect(lost.mock.calls).toEqual([[expect.objectContaining({ message: "the tab was closed" })]]);
  expect([getUserMedia.mock.calls.length, openStream.mock.calls.length, microphone.state]).toEqual([0, 2, "stopped"]);
});

test("a device that is found after stop is released", async () => {
  const { microphone } = await started();
  const other = new FakeTrack();
  getUserMedia.mockResolvedValue(streamOf(other));
  track.end();
  microphone.stop();
  await settle();
  expect([other.isStopped, microphone.state]).toEqual([true, "stopped"]);
});

test("the screen is kept on if wanted, and again when the page is back", async () => {
  const { microphone } = await started({ keepScreenOn: true });
  await settle();
  page.show("hidden");
  await locks[0]?.release();
  expect(locks.length).toBe(1);
  page.show("visible");
  await settle();
  expect(locks.map((lock) => lock.isReleased)).toEqual([true, false]);
  microphone.stop();
  await settle();
  expect(locks.map((lock) => lock.isReleased)).toEqual([true, true]);
});

test("the screen may turn off where nothing else is wanted or possible", async () => {
  const plain = await started();
  plain.microphone.stop();
  expect(locks).toEqual([]);
  vi.stubGlobal("navigator", { mediaDevices: devices });
  const { microphone } = await started({ keepScreenOn: true });
  await settle();
  expect(microphone.state).toBe("live");
  microphone.stop();
});

test.each([
  ["NotAllowedError", "permission_denied"],
  ["NotFoundError", "no_microphone"],
  ["NotReadableError", "microphone_busy"],
  ["OddError", "microphone_failed"],
])("%s becomes %s", async (name, code) => {
  const cause = new DOMException("no", name);
  getUserMedia.mockRejectedValue(cause);
  await expect(openMicrophone()).rejects.toThrow(MicrophoneError);
  await expect(openMicrophone()).rejects.toMatchObject({ code, cause });
});

test("a page without a secure origin gets an error of its own", async () => {
  vi.stubGlobal("navigator", {});
  await expect(openMicrophone()).rejects.toMatchObject({ code: "insecure_page" });
});

test("a signal that has fired asks the user nothing", async () => {
  await expect(openMicrophone({ signal: AbortSignal.abort() })).rejects.toThrow(AbortedError);
  expect(getUserMedia).not.toHaveBeenCalled();
});

test("a microphone that is granted after the abort is released", async () => {
  const controller = new AbortController();
  const stream = { getTracks: () => [track] };
  let grant: (stream: unknown) => void = () => {};
  getUserMedia.mockReturnValue(new Promise((resolve) => (grant = resolve)));
  const opening = openMicrophone({ signal: controller.signal });
  controller.abort();
  await expect(opening).rejects.toThrow(AbortedError);
  grant(stream);
  await Promise.resolve();
  expect(track.isStopped).toBe(true);
});

test("a worklet that cannot be loaded releases the microphone", async () => {
  useWorklet(vi.fn().mockRejectedValue(new TypeError("404")));
  await expect(openMicrophone()).rejects.toMatchObject({ code: "microphone_failed" });
  expect([track.isStopped, FakeContext.made[0]?.isClosed]).toEqual([true, true]);
});

test("an error names the policy that forbids the data: address of the worklet, and leaves the address out", async () => {
  const workletUrl = `data:text/javascript;base64,${"QUJD".repeat(250)}`;
  const cause = new DOMException(`Failed to load worklet module script: ${workletUrl}`, "AbortError");
  useWorklet(vi.fn().mockRejectedValue(cause));
  await expect(openMicrophone({ workletUrl })).rejects.toMatchObject({
    name: "MicrophoneError",
    code: "microphone_failed",
    message: "the Content-Security-Policy blocks the worklet; allow data: in script-src, or pass workletUrl",
    cause,
  });
});
