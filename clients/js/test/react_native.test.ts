/** The recorders of React Native are fakes here, which do what the documentation of the two libraries says. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { base64Bytes } from "../src/base64.js";
import { type AudioState, record } from "../src/core.js";
import {
  type AudioStudioConfig,
  fromAudioStudio,
  fromLiveAudioStream,
  type LiveAudioStreamOptions,
  type RecorderSource,
} from "../src/react_native.js";
import { FakeSocket } from "./fake_socket.js";

const base64 = (...samples: number[]) => Buffer.from(Int16Array.from(samples).buffer).toString("base64");

/** `react-native-live-audio-stream`: one listener, which it replaces. */
class FakeLiveAudioStream {
  options: LiveAudioStreamOptions | undefined;
  isRecording = false;
  nStarts = 0;
  #listener: ((base64: string) => void) | undefined;
  init = (options: LiveAudioStreamOptions) => void (this.options = options);
  on = (_: "data", listener: (base64: string) => void) => void (this.#listener = listener);
  start = () => {
    this.isRecording = true;
    this.nStarts += 1;
  };
  stop = async () => void (this.isRecording = false);
  record(data: string): void {
    this.#listener?.(data);
  }
}

/** What `useAudioRecorder` of `@siteed/audio-studio` returns. */
class FakeAudioStudio {
  config: AudioStudioConfig | undefined;
  nStops = 0;
  result: Promise<{ sampleRate?: number }> = Promise.resolve({ sampleRate: 16_000 });
  startRecording = (config: AudioStudioConfig) => {
    this.config = config;
    return this.result;
  };
  stopRecording = async () => void (this.nStops += 1);
}

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  expect(vi.getTimerCount(), "timers that are left").toBe(0);
  vi.useRealTimers();
});

function started(source: RecorderSource) {
  const chunks: number[][] = [];
  const states: AudioState[] = [];
  const lost = vi.fn();
  source.start((samples) => chunks.push([...samples]), lost, (state) => states.push(state));
  return { chunks, states, lost };
}

const settle = () => vi.advanceTimersByTimeAsync(0);

describe("react-native-live-audio-stream", () => {
  let stream: FakeLiveAudioStream;
  let source: RecorderSource;

  beforeEach(() => {
    stream = new FakeLiveAudioStream();
    source = fromLiveAudioStream(stream, { audioSource: 6 });
  });

  test("records at 16 kHz, and delivers samples, also where a chunk ends in the middle of one", () => {
    const { chunks, states } = started(source);
    expect(stream.options).toEqual({ sampleRate: 16_000, channels: 1, bitsPerSample: 16, audioSource: 6 });
    stream.record(base64(1, -2, 32_767));
    const bytes = Buffer.from(Int16Array.of(300, -300, 5).buffer);
    stream.record(bytes.subarray(0, 3).toString("base64"));
    stream.record(bytes.subarray(3).toString("base64"));
    source.stop();
    source.stop();
    stream.record(base64(9));
    expect(chunks).toEqual([[1, -2, 32_767], [300], [-300, 5]]);
    expect([states, stream.isRecording]).toEqual([["stopped"], false]);
  });

  test("reports when no audio comes for 2 s, and is started again when the application says so", async () => {
    const { chunks, states } = started(source);
    stream.record(base64(1));
    await vi.advanceTimersByTimeAsync(1_999);
    expect(states).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(states).toEqual(["interrupted"]);
    source.restart();
    await settle();
    stream.record(base64(2));
    expect([stream.nStarts, chunks, states]).toEqual([2, [[1], [2]], ["interrupted", "live"]]);
    source.stop();
    source.restart();
    await settle();
    expect(stream.nStarts).toBe(2);
  });

  test("is started once where the application says so twice", async () => {
    const { chunks } = started(source);
    source.restart();
    source.restart();
    await settle();
    stream.record(base64(2));
    expect([stream.nStarts, chunks]).toEqual([2, [[2]]]);
    source.stop();
  });

  test("begins again also where the system has stopped the recorder, which refuses to be stopped then", async () => {
    const { lost, chunks } = started(source);
    stream.stop = () => Promise.reject(new Error("no recording in progress"));
    source.restart();
    await settle();
    stream.record(base64(2));
    expect([lost.mock.calls, stream.nStarts, chunks]).toEqual([[], 2, [[2]]]);
    source.stop();
  });

  test("audio that is not base64 is an error that says so, and ends the source", () => {
    const { lost } = started(source);
    stream.record("AAA*");
    expect(lost.mock.calls).toEqual([[expect.objectContaining({ code: "microphone_failed" })]]);
    expect(String(lost.mock.calls[0]?.[0])).toContain('expected base64 text, got the character "*"');
    expect([source.state, stream.isRecording]).toEqual(["stopped", false]);
  });

  test("a recorder that throws an error is lost", async () => {
    stream.start = () => {
      throw new Error("no permission");
    };
    const { lost } = started(source);
    await settle();
    expect(String(lost.mock.calls[0]?.[0])).toContain("the recorder failed: no permission");
  });

  test("is the source of a session", async () => {
    const socket = new FakeSocket();
    const connecting = record("http://tutti", source, { openSocket: socket.open });
    socket.accept();
    const session = await connecting;
    expect(socket.sentText[0]).toMatchObject({ audio: { encoding: "pcm_s16le", sample_rate: 16_000, channels: 1 } });
    stream.record(base64(1, 256));
    expect(socket.sentAudio).toEqual([[1, 0, 0, 1]]);
    session.close();
    expect(stream.isRecording).toBe(false);
  });
});

describe("@siteed/audio-studio", () => {
  let studio: FakeAudioStudio;
  let source: RecorderSource;

  beforeEach(() => {
    studio = new FakeAudioStudio();
    source = fromAudioStudio(studio, { ios: { audioSession: { category: "Record" } } });
  });

  test("records 16-bit PCM, also where it gives floats", async () => {
    const { chunks } = started(source);
    await settle();
    expect(studio.config).toMatchObject({
      sampleRate: 16_000,
      channels: 1,
      encoding: "pcm_16bit",
      autoResumeAfterInterruption: true,
      ios: { audioSession: { category: "Record" } },
    });
    await studio.config?.onAudioStream({ data: base64(1, 2) });
    await studio.config?.onAudioStream({ data: Float32Array.of(-2, 0.5, 1) });
    await studio.config?.onAudioStream({ data: Int16Array.of(7) });
    expect(chunks).toEqual([[1, 2], [-32_767, 16_384, 32_767], [7]]);
    source.stop();
    expect(studio.nStops).toBe(1);
  });

  test("tells of a phone call, of its end, and of a device that is gone", async () => {
    const { states } = started(source);
    await settle();
    const interrupt = (reason: string, isPaused: boolean) => studio.config?.onRecordingInterrupted({ reason, isPaused });
    interrupt("phoneCall", true);
    interrupt("phoneCallEnded", false);
    interrupt("deviceDisconnected", true);
    await studio.config?.onAudioStream({ data: base64(1) });
    expect(states).toEqual(["interrupted", "live", "disconnected", "live"]);
    source.stop();
  });

  test("a recording that the system has stopped is lost", async () => {
    const { lost } = started(source);
    await settle();
    studio.config?.onRecordingInterrupted({ reason: "recordingStopped", isPaused: true });
    expect(lost.mock.calls).toEqual([[expect.objectContaining({ code: "microphone_failed" })]]);
  });

  test("a sample rate that was not asked for is an error", async () => {
    studio.result = Promise.resolve({ sampleRate: 48_000 });
    const { lost } = started(source);
    await settle();
    expect(String(lost.mock.calls[0]?.[0])).toContain("expected a sample rate of 16000 Hz, got 48000 Hz");
  });

  test("a recording that begins after stop is stopped", async () => {
    let begin: (result: object) => void = () => {};
    studio.result = new Promise((resolve) => (begin = resolve));
    started(source);
    source.stop();
    begin({});
    await settle();
    expect(studio.nStops).toBe(2);
  });
});

test.each(["", "A", "Zg==", "Zm8=", "Zm9v", "Zm9v\nYmFy\r\n", "+/+/"])("%j is decoded as elsewhere", (text) => {
  expect([...base64Bytes(text)]).toEqual([...Buffer.from(text, "base64")]);
});
