import { afterEach, beforeEach, expect, test, vi } from "vitest";

type Processor = {
  port: { onmessage: (message: unknown) => void };
  process(inputs: Float32Array[][]): boolean;
};

let posted: Int16Array[];
let processor: Processor;

beforeEach(async () => {
  posted = [];
  class AudioWorkletProcessor {
    port = { onmessage: undefined, postMessage: (chunk: Int16Array) => posted.push(chunk) };
  }
  vi.stubGlobal("AudioWorkletProcessor", AudioWorkletProcessor);
  vi.stubGlobal("sampleRate", 8000);
  vi.stubGlobal("registerProcessor", (_: string, Chunks: new () => Processor) => {
    processor = new Chunks();
  });
  vi.resetModules();
  await import("../src/worklet.js");
});

afterEach(() => {
  vi.unstubAllGlobals();
});

test("chunks last 100 ms, however long the blocks are", () => {
  const ramp = Float32Array.from({ length: 128 }, (_, index) => index / 128);
  for (let block = 0; block < 13; block++) {
    expect(processor.process([[ramp]])).toBe(true);
  }
  expect(posted.map((chunk) => chunk.length)).toEqual([800, 800]);
  const sent = posted.flatMap((chunk) => [...chunk]);
  expect(sent.slice(0, 1600)).toEqual(
    Array.from({ length: 1600 }, (_, index) => Math.round(((index % 128) / 128) * 32767)),
  );
});

test("samples beyond full scale are clipped", () => {
  processor.process([[new Float32Array(800).fill(-1.5).fill(1.5, 400)]]);
  expect([posted[0]?.at(0), posted[0]?.at(-1)]).toEqual([-32767, 32767]);
});

test("flush posts the rest, then an empty chunk", () => {
  processor.process([[new Float32Array(128).fill(1)]]);
  processor.port.onmessage("flush");
  processor.port.onmessage("flush");
  expect(posted.map((chunk) => chunk.length)).toEqual([128, 0, 0]);
});

test("an input that is not connected gives no chunks", () => {
  expect([processor.process([]), processor.process([[]])]).toEqual([true, true]);
  expect(posted).toEqual([]);
});
