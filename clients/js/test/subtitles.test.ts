import { expect, test } from "vitest";
import { toSrt, toVtt } from "../src/index.js";

const SEGMENTS = [
  { start_s: 3725, end_s: 3725, text: " Later ---> <b>&" },
  { start_s: 0.12, end_s: 1.5, text: " Hello\nthere." },
  { start_s: 2, end_s: 3, text: " " },
];

test("SRT is numbered and in the order of time", () => {
  expect(toSrt(SEGMENTS)).toBe(
    "1\n00:00:00,120 --> 00:00:01,500\nHello there.\n\n2\n01:02:05,000 --> 01:02:05,001\nLater -> <b>&\n\n",
  );
});

test("WebVTT is escaped", () => {
  expect(toVtt(SEGMENTS)).toBe(
    "WEBVTT\n\n00:00:00.120 --> 00:00:01.500\nHello there.\n\n" +
      "01:02:05.000 --> 01:02:05.001\nLater ---&gt; &lt;b&gt;&amp;\n\n",
  );
});

test("speakers are named as in the server's subtitles: before the text, or as a voice", () => {
  const segments = [
    { start_s: 0, end_s: 1, text: " Good morning.", speaker: "A & B\n-->" },
    { start_s: 1, end_s: 2, text: " Hello.", speaker: undefined },
  ];
  expect(toSrt(segments)).toBe(
    "1\n00:00:00,000 --> 00:00:01,000\nA & B ->: Good morning.\n\n2\n00:00:01,000 --> 00:00:02,000\nHello.\n\n",
  );
  expect(toVtt(segments)).toBe(
    "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n<v A &amp; B --&gt;>Good morning.\n\n" +
      "00:00:01.000 --> 00:00:02.000\nHello.\n\n",
  );
});
