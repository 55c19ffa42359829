import { describe, expect, test } from "vitest";
import { connect, parseEvent, ProtocolError, type StartOptions } from "../src/index.js";
import { FakeSocket } from "./fake_socket.js";
import { readShared } from "./server_messages.js";

interface Golden {
  name: string;
  wire: Record<string, unknown> & { type: string };
}

const golden = (file: string) => readShared<Golden[]>(`wire/${file}`);

/** Fields that the server leaves out where there is nothing to say. */
const LEFT_OUT = [
  "started.room",
  "segment.language_probability",
  "utterance.language",
  "utterance.language_probability",
  "utterance.translated_until_s",
  "translation.earlier",
];
/** Fields that the server leaves out where they have no content. */
const OPTIONAL = ["stable_words", "speaker", "voices", "redactions"];

describe("server messages", () => {
  test.each(golden("server.json"))("$name: parses to what it is on the wire, and extra fields are left out", ({ wire }) => {
    expect(parseEvent({ ...wire, colour: "blue" })).toEqual(wire);
  });

  test.each(golden("server.json"))("$name: each field must be there and right", ({ wire }) => {
    for (const field of Object.keys(wire)) {
      const { [field]: _, ...without } = wire;
      if (LEFT_OUT.includes(`${wire.type}.${field}`)) {
        expect(parseEvent(without)).toEqual(without);
      } else if (field === "detector_from_s") {
        // Servers of before do not send it.
        expect(parseEvent(without)).toEqual({ ...wire, [field]: [] });
      } else if (!OPTIONAL.includes(field)) {
        expect(() => parseEvent(without)).toThrow(ProtocolError);
      }
      expect(() => parseEvent({ ...wire, [field]: { odd: true } })).toThrow(field === "type" ? /^type: / : field);
    }
  });

  test("an event newer than this client is passed on", () => {
    const wire = { type: "applause", loud: true };
    expect(parseEvent(wire)).toEqual({ type: "unknown", name: "applause", fields: wire });
  });

  test.each([
    [{ type: "lag", behind_s: "4" }, 'lag.behind_s: expected a number, got "4"'],
    [{ type: "lag", behind_s: Number.NaN }, "lag.behind_s: expected a number, got null"],
    [{ type: "flushed" }, "flushed.id: expected a string or an integer, got nothing"],
    [{ type: "flushed", id: 1.5 }, "flushed.id: expected a string or an integer, got 1.5"],
    [{ type: "speech_started", utterance: -1, channel: 0, at_s: 0 }, "speech_started.utterance: expected an integer from 0, got -1"],
    [[], "event: expected an object, got []"],
    ["started", 'event: expected an object, got "started"'],
    [{ id: 1 }, "type: expected a string, got nothing"],
  ])("errors name the field, what was expected and what came: %j", (wire, message) => {
    expect(() => parseEvent(wire)).toThrow(message);
  });

  test("errors name the index in a list", () => {
    const wire = golden("server.json").find(({ name }) => name === "segment with words")!.wire;
    const words = [(wire["words"] as unknown[])[0], { word: "there.", start_s: 0.6, end_s: null, confidence: 1 }];
    expect(() => parseEvent({ ...wire, words })).toThrow("segment.words[1].end_s: expected a number, got null");
  });
});

describe("client messages", () => {
  const starts = golden("client.json").filter(({ wire }) => wire.type === "start");
  const others = golden("client.json").filter(({ wire }) => wire.type !== "start");

  test.each(starts)("$name: is sent as it is on the wire", async ({ wire }) => {
    const socket = new FakeSocket();
    const { type: _, ...start } = wire;
    const connecting = connect("ws://tutti", {
      start: start as StartOptions,
      resumeBufferS: 0,
      openSocket: socket.open,
    });
    await socket.isWanted;
    socket.accept();
    await connecting;
    expect(socket.sentText).toEqual([wire]);
  });

  test.each(others)("$name: is sent as it is on the wire", async ({ wire }) => {
    const socket = new FakeSocket();
    const connecting = connect("ws://tutti", { openSocket: socket.open });
    socket.accept();
    const session = await connecting;
    if (wire.type === "flush") {
      expect(session.flush(wire["id"] as string | number)).toBe(wire["id"]);
    } else if (wire.type === "keepalive") {
      session.keepalive();
    } else {
      session.stop();
    }
    expect(socket.sentText.at(-1)).toEqual(wire);
    session.close();
  });
});
