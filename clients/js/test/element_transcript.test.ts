import { describe, expect, it } from "vitest";

import type { CaptionEvent } from "../src/element/events.js";
import { type Change, Transcript } from "../src/element/transcript.js";
import { toSrt } from "../src/subtitles.js";
import { ended, interim, readShared, segment } from "./server_messages.js";

const recorded = readShared<CaptionEvent[]>("browser/exchange.json");

const translation = (utterance: number, text: string, start_s: number, end_s: number): CaptionEvent => ({
  type: "translation",
  utterance,
  channel: 0,
  language: "de",
  start_s,
  end_s,
  text,
});

function applied(transcript: Transcript, ...events: CaptionEvent[]): Change[] {
  return events.flatMap((event) => transcript.apply(event));
}

describe("Transcript", () => {
  it("names the speaker of each line, and follows what the server says later", () => {
    const transcript = new Transcript();
    const speakers = (speaker: string): CaptionEvent => ({
      type: "speakers",
      channel: 0,
      spans: [{ from_s: 0, until_s: 1, speaker }],
    });
    applied(transcript, { ...segment(0, 0, "Hello."), speaker: "A" } as CaptionEvent, ended(0, 0, "Hello."));
    expect(transcript.lines[0]?.speaker).toBe("A");
    expect(transcript.apply(speakers("A"))).toEqual([]);
    expect(transcript.apply(speakers("B")).map(({ kind }) => kind)).toEqual(["labelled"]);
    expect(transcript.lines[0]?.speaker).toBe("B");
    applied(transcript, { ...interim(1, 1, "How", " are"), channel: 1, speaker: "caller" } as CaptionEvent);
    expect(transcript.open[0]?.speaker).toBe("caller");
  });

  it("has the texts of the recorded utterances, in the order in which they ended", () => {
    const transcript = new Transcript();
    applied(transcript, ...recorded);
    const texts = recorded.flatMap((event) => (event.type === "utterance" && event.text !== "" ? [event.text] : []));
    expect(transcript.lines.map((line) => line.text)).toEqual(texts);
    expect(transcript.lines.map((line) => line.index)).toEqual(texts.map((_, index) => index));
    expect(transcript.open).toEqual([]);
  });

  it("says each final text once, although all events come twice", () => {
    const transcript = new Transcript();
    const half = Math.floor(recorded.length / 2);
    const changes = applied(transcript, ...recorded.slice(0, half), ...recorded, ...recorded);
    const segments = recorded.flatMap((event) => (event.type === "segment" ? [event.text] : []));
    expect(changes.map((change) => change.spoken).filter((text) => text !== "")).toEqual(segments);
    expect(transcript.lines.length).toBe(new Set(transcript.lines.map((line) => line.utterance)).size);
  });

  it("tells text that may change from text that may not", () => {
    const transcript = new Transcript();
    applied(transcript, interim(0, 0, "Hello", " every"));
    expect(transcript.open).toMatchObject([{ text: "Hello", changing: " every", index: -1 }]);
    applied(transcript, segment(0, 0, "Hello"), interim(0, 0, " everyone", " and"));
    expect(transcript.open).toMatchObject([{ text: "Hello everyone", changing: " and" }]);
  });

  it("has no line for an utterance without text", () => {
    const transcript = new Transcript();
    const changes = applied(transcript, interim(0, 0, "", "Uh"), ended(0, 0, ""));
    expect(changes.map((change) => change.kind)).toEqual(["open", "removed"]);
    expect(transcript.lines).toEqual([]);
  });

  it("says the text of an utterance whose segments did not come", () => {
    const transcript = new Transcript();
    expect(applied(transcript, ended(0, 0, "Hello.")).map((change) => change.spoken)).toEqual(["Hello."]);
  });

  it("takes an open utterance away, and takes its text a second time", () => {
    const transcript = new Transcript();
    const retract = { type: "retract", utterance: 0 } as const;
    const changes = applied(transcript, segment(0, 0, "One."), retract, segment(0, 0, "Won."), ended(0, 0, "Won."));
    expect(changes.map((change) => change.kind)).toEqual(["open", "removed", "open", "final"]);
    expect(transcript.lines.map((line) => line.text)).toEqual(["Won."]);
    expect(applied(transcript, { ...retract, utterance: 7 })).toEqual([]);
  });

  it("takes a final utterance away, and the others keep their places", () => {
    const transcript = new Transcript();
    applied(transcript, ended(0, 0, "One."), ended(1, 1, "Two."), translation(1, "Zwei.", 1, 2));
    const changes = applied(transcript, { type: "retract", utterance: 1 }, ended(2, 2, "Too."));
    expect(changes.map((change) => change.kind)).toEqual(["removed", "final"]);
    expect(transcript.lines.map((line) => [line.index, line.text])).toEqual([
      [0, "One."],
      [2, "Too."],
    ]);
    expect(transcript.at(1)?.translation("de")).toBeUndefined();
  });

  it("joins the translations of an utterance, also when they come again in other parts", () => {
    const transcript = new Transcript();
    applied(transcript, segment(0, 0, "One. Two."), translation(0, "Eins.", 0, 1), translation(0, " Zwei.", 1, 2));
    const [line] = transcript.open;
    expect(line?.translation("de")).toBe("Eins. Zwei.");
    expect(line?.translation("fr")).toBeUndefined();
    expect(transcript.languages).toEqual(["de"]);
    expect(applied(transcript, translation(0, "Eins.", 0, 1))).toEqual([]);
    applied(transcript, translation(0, "Eins. Zwei. Drei.", 0, 3), translation(0, " Zwei.", 1, 2));
    expect(line?.translation("de")).toBe("Eins. Zwei. Drei.");
    expect(applied(transcript, translation(7, "Wer?", 0, 1))).toEqual([]);
  });

  it("knows the language of a speaker from the utterance before", () => {
    const transcript = new Transcript();
    applied(transcript, segment(0, 0, "Salaam", "fa"), ended(0, 0, "Salaam"), interim(1, 1, "", "Khubi"));
    expect(transcript.open[0]?.language).toBe("fa");
  });

  it("keeps what was stable at the end of a session, and counts the utterances of the next one anew", () => {
    const transcript = new Transcript();
    const started = { type: "started", session_id: "s", model: "m", limits: {}, warnings: [] } as never;
    applied(transcript, ended(0, 0, "One."), interim(1, 1, "Two", " thr"), interim(2, 2, "", "Fou"), started, ended(0, 0, "Five."));
    expect(transcript.lines.map((line) => [line.text, line.isCut])).toEqual([
      ["One.", false],
      ["Two", true],
      ["Five.", false],
    ]);
  });

  it("shows a gap where audio was lost, which subtitles leave out", () => {
    const transcript = new Transcript();
    applied(transcript, ended(0, 0, "One."), { type: "resumed", gap: [1, 61] }, { type: "resumed", gap: null });
    expect(transcript.lines.map((line) => line.gap)).toEqual([undefined, [1, 61]]);
    expect(toSrt(transcript.lines)).not.toContain("\n2\n");
  });

  it("forgets the oldest of very many lines", () => {
    const transcript = new Transcript();
    for (let utterance = 0; utterance <= 20_000; utterance++) {
      transcript.apply(ended(utterance, utterance, "Yes."));
    }
    expect([transcript.lines.length, transcript.first, transcript.at(0)]).toEqual([20_000, 1, undefined]);
    expect(transcript.at(20_000)?.utterance).toBe(20_000);
    transcript.clear();
    transcript.apply(ended(3, 3, "No."));
    expect(transcript.lines.map((line) => line.index)).toEqual([20_001]);
  });
});

