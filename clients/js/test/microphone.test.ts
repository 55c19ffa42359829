import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { AbortedError, MicrophoneError, openMicrophone } from "../src/index.js";

class FakeTrack {
  isStopped = false;
  onended: (() => void) | null = null;
  stop(): void {
    this.isStopped = true;
  }
}

class FakeContext {
  static made: FakeContext[] = [];
  static defaultRate = 44_100;
  readonly sampleRate: number;
  isClosed = false;
  audioWorklet = { addModule: vi.fn(async () => {}) };
  constructor(options?: { sampleRate: number }) {
    this.sampleRate = options?.sampleRate ?? FakeContext.defaultRate;
    FakeContext.made.push(this);
  }
  resume = async () => {};
  close = async () => {
    this.isClosed = true;
  };
  destination = {};
  createMediaStreamSource = () => ({ connect: () => {} });
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

let track: FakeTrack;
let getUserMedia: ReturnType<typeof vi.fn<() => Promise<unknown>>>;

beforeEach(() => {
  track = new FakeTrack();
  FakeContext.made = [];
  FakeContext.defaultRate = 44_100;
  const stream = { getTracks: () => [track], getAudioTracks: () => [track] };
  getUserMedia = vi.fn(async () => stream);
  vi.stubGlobal("navigator", { mediaDevices: { getUserMedia } });
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

test("a device that is disconnected is reported", async () => {
  const microphone = await openMicrophone();
  const lost = vi.fn();
  microphone.start(() => {}, lost);
  track.onended?.();
  expect(lost).toHaveBeenCalledWith(expect.objectContaining({ code: "microphone_lost" }));
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
  const addModule = async () => {
    throw new TypeError("404");
  };
  vi.stubGlobal("AudioContext", class extends FakeContext {
    override audioWorklet = { addModule } as unknown as FakeContext["audioWorklet"];
  });
  await expect(openMicrophone()).rejects.toMatchObject({ code: "microphone_failed" });
  expect([track.isStopped, FakeContext.made[0]?.isClosed]).toEqual([true, true]);
});
