import { expect, test } from "vitest";
import { Captions, parseEvent } from "../src/index.js";

const apply = (captions: Captions, type: string, fields: object) =>
  captions.apply(
    parseEvent({
      type, utterance: 0, channel: 0, id: 0, start_s: 1, end_s: 2, at_s: 1, words: [], confidence: 1,
      ...(type === "segment" ? { language: null } : {}), uncovered: [], final_until_s: 2, resume_from_s: [2], ...fields,
    }),
  );

test("an utterance goes from tail to stable to segments to one final line", () => {
  const captions = new Captions();
  apply(captions, "speech_started", { at_s: 0.5 });
  expect(captions.channels.get(0)?.open).toMatchObject([{ start_s: 0.5, segments: "", stable: "", tail: "" }]);
  apply(captions, "interim", { stable: "", tail: "Hell" });
  apply(captions, "interim", { stable: "Hello", tail: " their. How" });
  expect(captions.channels.get(0)?.open).toMatchObject([{ stable: "Hello", tail: " their. How" }]);
  apply(captions, "segment", { text: "Hello there." });
  expect(captions.channels.get(0)?.open).toMatchObject([{ segments: "Hello there.", stable: "", tail: " How" }]);
  apply(captions, "interim", { stable: " How", tail: " are" });
  apply(captions, "segment", { text: " How are you?" });
  expect(captions.channels.get(0)?.open).toMatchObject([{ segments: "Hello there. How are you?" }]);
  apply(captions, "utterance", { text: "Hello there. How are you?" });
  expect(captions.channels.get(0)).toEqual({
    open: [],
    lines: [{ utterance: 0, channel: 0, start_s: 1, end_s: 2, text: "Hello there. How are you?", uncovered: [] }],
  });
});

test("a line that ends makes a new list: lists of React Native draw no other", () => {
  const captions = new Captions();
  apply(captions, "utterance", { text: "One." });
  const before = captions.channels.get(0)?.lines;
  apply(captions, "utterance", { utterance: 1, text: "Two." });
  expect(before).toMatchObject([{ text: "One." }]);
  expect(captions.channels.get(0)?.lines).toMatchObject([{ text: "One." }, { text: "Two." }]);
});

test.each([
  ["stable text", "One. Two", " tree", { segments: "One.", stable: " Two", tail: " tree" }],
  ["tail", "On", "e. Two", { segments: "One.", stable: "", tail: " Two" }],
])("a segment leaves the %s after it in place", (_, stable, tail, expected) => {
  const captions = new Captions();
  apply(captions, "interim", { stable, tail });
  apply(captions, "segment", { text: "One." });
  expect(captions.channels.get(0)?.open).toMatchObject([expected]);
});

test("a segment replaces the words of a wrong tail", () => {
  const captions = new Captions();
  apply(captions, "interim", { stable: "Hello", tail: " north, my frend. How are you" });
  apply(captions, "segment", { text: "Hello there, my friend." });
  expect(captions.channels.get(0)?.open).toMatchObject([
    { segments: "Hello there, my friend.", stable: "", tail: " How are you" },
  ]);
  apply(captions, "segment", { text: " How are you doing?" });
  expect(captions.channels.get(0)?.open).toMatchObject([{ stable: "", tail: "" }]);
});

test.each([
  ["has fewer words", "five six slabs. Six spoons", "5-6 slabs.", " Six spoons"],
  ["has more words", "56 slabs. Six spoons", "5, 6 slabs.", " Six spoons"],
  ["has no spaces", "今天天汽很好我们", "今天天气很好", "我们"],
])("only the words of a wrong tail go that correspond to a segment that %s", (_, tail, text, rest) => {
  const captions = new Captions();
  apply(captions, "interim", { stable: "", tail });
  apply(captions, "segment", { text });
  expect(captions.channels.get(0)?.open).toMatchObject([{ segments: text, stable: "", tail: rest }]);
});

test("an utterance that begins before the last one is final has a line of its own", () => {
  const captions = new Captions();
  apply(captions, "interim", { utterance: 0, stable: "One", tail: "" });
  apply(captions, "speech_started", { utterance: 1 });
  apply(captions, "interim", { utterance: 1, stable: "", tail: "Two" });
  expect(captions.channels.get(0)?.open.map((line) => line.stable + line.tail)).toEqual(["One", "Two"]);
  apply(captions, "utterance", { utterance: 0, text: "One." });
  expect(captions.channels.get(0)?.open).toMatchObject([{ utterance: 1, tail: "Two" }]);
});

test("channels are kept apart", () => {
  const captions = new Captions();
  apply(captions, "interim", { channel: 0, utterance: 0, stable: "left", tail: "" });
  apply(captions, "interim", { channel: 1, utterance: 1, stable: "right", tail: "" });
  expect([...captions.channels].map(([channel, { open }]) => [channel, open[0]?.stable])).toEqual([
    [0, "left"],
    [1, "right"],
  ]);
});

test("an utterance without text is a line with the speech that has no text", () => {
  const captions = new Captions();
  expect(apply(captions, "utterance", { text: "", uncovered: [[1, 2]] })).toMatchObject({ text: "", uncovered: [[1, 2]] });
});

test("other events change no line", () => {
  const captions = new Captions();
  expect(captions.apply({ type: "lag", behind_s: 1 })).toBeUndefined();
  expect(captions.channels.size).toBe(0);
});
