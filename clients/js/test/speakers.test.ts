import { describe, expect, it } from "vitest";

import type { SpeakerSpan, SpeakersEvent } from "../src/events.js";
import { SpeakerTimeline } from "../src/speakers.js";
import { readShared } from "./server_messages.js";

const speakers = (...spans: [number, number, string][]) => ({
  type: "speakers" as const,
  channel: 0,
  spans: spans.map(([from_s, until_s, speaker]) => ({ from_s, until_s, speaker })),
});

const sessions = readShared<{ events: SpeakersEvent[]; known: SpeakerSpan[] }[]>("wire/speakers.json");
const FRAME_S = 0.02;

describe("SpeakerTimeline", () => {
  it.each(sessions)("knows in the end what the session knows", ({ events, known }) => {
    const timeline = new SpeakerTimeline();
    events.forEach((event) => timeline.apply(event));
    const speakerAt = (frame: number) =>
      known.find(({ from_s, until_s }) => from_s < (frame + 0.5) * FRAME_S && (frame + 0.5) * FRAME_S < until_s)?.speaker;
    const first = Math.round(Math.min(...known.map(({ from_s }) => from_s)) / FRAME_S);
    const last = Math.round(Math.max(...known.map(({ until_s }) => until_s)) / FRAME_S);
    for (let frame = first - 2; frame < last + 2; frame += 1) {
      expect(timeline.speakerOf((frame + 0.25) * FRAME_S, (frame + 0.75) * FRAME_S)).toBe(speakerAt(frame));
    }
  });

  it("says between which times an event lies, and ignores spans that are empty", () => {
    const timeline = new SpeakerTimeline();
    expect(timeline.apply(speakers([4, 5, "A"], [1, 2, "B"], [3, 3, "C"], [9, 8, "C"]))).toEqual([1, 8]);
    expect(timeline.speakerOf(0, 10)).toBe("B");
    expect(timeline.apply(speakers())).toEqual([Infinity, -Infinity]);
  });

  it("knows who speaks for most of a time", () => {
    const timeline = new SpeakerTimeline();
    timeline.apply(speakers([0, 2, "A"], [2, 3, "B"]));
    timeline.apply(speakers([3, 4, "B"]));
    expect(timeline.speakerOf(1, 2.5)).toBe("A");
    expect(timeline.speakerOf(1.5, 4)).toBe("B");
    expect(timeline.speakerOf(5, 6)).toBeUndefined();
  });
});
