import { describe, expect, test } from "vitest";
import { align } from "../src/align.js";
import { Continuity } from "../src/continuity.js";
import { partsFor } from "../src/optional.js";
import { parseEvent } from "../src/index.js";
import { readShared } from "./server_messages.js";

interface Case {
  name: string;
  from_s: number[];
  translate?: string[];
  channel_names?: string[];
  connections: {
    audio_from_s: number;
    lost_until_s?: number;
    untranslated?: unknown[];
    events: unknown[];
    /** Absent where the program receives the events as they are. */
    delivered?: unknown[];
  }[];
}

const CASES = readShared<Case[]>("wire/resume.json");

describe("the events of several connections become one stream", () => {
  test.each(CASES.map((each) => [each.name, each] as const))("%s", (_, { from_s, translate, channel_names, connections }) => {
    const parts = partsFor({ ...(translate === undefined ? {} : { translate }), turns: true, words: true });
    const continuity = new Continuity(from_s, Math.min(...from_s), parts, channel_names);
    connections.forEach(({ audio_from_s, lost_until_s, untranslated, events, delivered = events }, number) => {
      if (number > 0) {
        expect(continuity.translations?.missing(continuity.resumeFromS) ?? []).toEqual(untranslated ?? []);
      }
      const received = number > 0 ? continuity.resume(audio_from_s, lost_until_s) : [];
      received.push(...events.flatMap((event) => continuity.receive(parseEvent(event))));
      expect(received).toEqual(delivered);
    });
  });
});

test.each([
  ["", "one two", "", ""],
  ["one two", "", "", ""],
  ["one", "one two", "one", "one"],
  ["one", "ones", "one", "one"],
  ["one two", "One, two. Three", "one two", "One, two."],
  ["one two three", "one too", "one two", "one too"],
  ["one two three", "one three four", "one two three", "one three"],
  ["one three", "one two three four", "one three", "one two three"],
  ["no no no", "no no no no yes", "no no no", "no no no"],
  ["– one", "– two three", "– one", "– two"],
  ["你好世界", "你好是界吗", "你好世界", "你好是界"],
  ["สวัสดี", "สวัสดีครับ", "สวัสดี", "สวัสดี"],
  ["𠀀𠀁", "𠀀𠀂𠀃", "𠀀𠀁", "𠀀𠀂"],
])("%j and %j are aligned by words", (shown, theirs, ours, their) => {
  const [nShown, nTheirs] = align(shown, theirs);
  expect([shown.slice(0, nShown), theirs.slice(0, nTheirs)]).toEqual([ours, their]);
});
