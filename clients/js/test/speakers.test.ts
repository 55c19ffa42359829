import { describe, expect, it } from "vitest";
import { SpeakerTimeline } from "../src/speakers.js";

const speakers = (...spans: [number, number, string][]) => ({
  type: "speakers" as const,
  channel: 0,
  spans: spans.map(([from_s, until_s, speaker]) => ({ from_s, until_s, speaker })),
});

describe("SpeakerTimeline", () => {
  it("knows who speaks for most of a time", () => {
    const timeline = new SpeakerTimeline();
    timeline.apply(speakers([0, 2, "A"], [2, 3, "B"]));
    timeline.apply(speakers([3, 4, "B"]));
    expect(timeline.speakerOf(1, 2.5)).toBe("A");
    expect(timeline.speakerOf(1.5, 4)).toBe("B");
    expect(timeline.speakerOf(5, 6)).toBeUndefined();
  });

  it("replaces what was said of the times of a later event", () => {
    const timeline = new SpeakerTimeline();
    timeline.apply(speakers([0, 4, "A"]));
    timeline.apply(speakers([1, 2, "B"]));
    expect([timeline.speakerOf(0, 1), timeline.speakerOf(1, 2), timeline.speakerOf(2, 4)]).toEqual(["A", "B", "A"]);
    timeline.apply(speakers([0, 4, "C"]));
    expect(timeline.speakerOf(1, 2)).toBe("C");
  });
});
