import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  AbortedError,
  ConnectError,
  ConnectionLost,
  type FileEvent,
  type FileOptions,
  type FileProgress,
  ProtocolError,
  RequestError,
  SessionError,
  transcribeFile,
  UsageError,
} from "../src/index.js";
import { collect } from "./server_messages.js";

const HELLO = {
  type: "transcript.text.segment", id: 0, start: 0.5, end: 1.25, text: "Hello there.", avg_logprob: -0.1,
  utterance: 0, confidence: 0.9, language: "en",
};
const UNCOVERED = { type: "transcript.text.segment", start: 2, end: 3.5, text: "", utterance: 0 };
const BYE = { ...HELLO, id: 1, utterance: 1, start: 4, end: 5, text: "Bye." };
const DONE = { type: "transcript.text.done", text: "Hello there. Bye.", duration: 6, speech_duration: 2, words: 3 };

const SEGMENT = {
  type: "segment", utterance: 0, id: 0, channel: 0, start_s: 0.5, end_s: 1.25, text: "Hello there.",
  words: [], confidence: 0.9, language: "en",
};
const STOPPED = { type: "stopped", audio_s: 6, speech_s: 2, words: 3 };

/** The fields of the last form, by name; the file is its name and text. */
let sent: Map<string, string[]>;
let request: { url: string; authorization: string | undefined };
let answer: (response: ServerResponse) => void;
let server: Server;
let url: string;
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "tutti-"));
  server = createServer(async (incoming, response) => {
    request = { url: incoming.url ?? "", authorization: incoming.headers.authorization };
    sent = await fieldsOf(incoming);
    answer(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterEach(async () => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true });
});

async function fieldsOf(incoming: IncomingMessage): Promise<Map<string, string[]>> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) {
    chunks.push(chunk as Buffer);
  }
  const headers = { "content-type": incoming.headers["content-type"] ?? "" };
  const form = await new Response(Buffer.concat(chunks), { headers }).formData();
  const fields = new Map<string, string[]>();
  for (const [name, value] of form.entries()) {
    const text = typeof value === "string" ? value : `${value.name}: ${await value.text()}`;
    fields.set(name, [...(fields.get(name) ?? []), text]);
  }
  return fields;
}

const frame = (message: unknown) => `data: ${JSON.stringify(message)}\n\n`;

const stream =
  (...messages: unknown[]) =>
  (response: ServerResponse) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(": still at it\n\n");
    // Cut anywhere, also inside a character.
    for (const byte of Buffer.from(messages.map(frame).join(""))) {
      response.write(Buffer.of(byte));
    }
    response.end();
  };

const bytes = new TextEncoder().encode("audio");

test("gives the events of a session: segments, utterances and the end", async () => {
  answer = stream({ type: "transcript.text.delta", delta: "Hello there." }, HELLO, UNCOVERED, BYE, DONE);
  const events = await collect(transcribeFile(url, bytes));
  expect(events.map((event) => event.type)).toEqual(["segment", "utterance", "segment", "utterance", "stopped"]);
  expect(events[0]).toEqual(SEGMENT);
  expect(events[1]).toEqual({
    type: "utterance", utterance: 0, channel: 0, start_s: 0.5, end_s: 3.5, text: "Hello there.",
    uncovered: [[2, 3.5]], final_until_s: 3.5, resume_from_s: [3.5], detector_from_s: [],
  });
  expect(events[4]).toEqual(STOPPED);
});

const CUT_OFF = { code: "cut_off", message: "the file breaks off" };

test("delivers what the server wants to be known of the file and of its options", async () => {
  answer = (response) => {
    response.writeHead(200, { "x-tutti-ignored": "beam_size, keywords" });
    response.end(frame(HELLO) + frame({ ...DONE, warnings: [CUT_OFF] }));
  };
  const events = await collect(transcribeFile(url, bytes));
  expect(events.map((event) => event.type)).toEqual(["warning", "warning", "segment", "warning", "utterance", "stopped"]);
  expect(events.filter((event) => event.type === "warning").map(({ code, message }) => [code, message])).toEqual([
    ["no_effect", "beam_size: has no effect on this server"],
    ["no_effect", "hotwords: has no effect on this server"],
    ["cut_off", CUT_OFF.message],
  ]);
});

test("a browser tells of options without effect, too", async () => {
  const { events, first, xhr } = await inBrowser();
  xhr.ignored = "prompt";
  xhr.begin(200);
  expect(await first).toMatchObject({ value: { type: "warning", code: "no_effect" } });
  await events.return();
  expect(xhr.isAborted).toBe(true);
});

test("times words when it should, and takes text of any script", async () => {
  const word = { word: "čau", start: 0.5, end: 1.25, confidence: 0.8 };
  answer = stream({ ...HELLO, text: "čau", words: [word] }, DONE);
  const [segment] = await collect(transcribeFile(url, bytes, { words: true }));
  expect(segment).toMatchObject({ text: "čau", words: [{ word: "čau", start_s: 0.5, end_s: 1.25, confidence: 0.8 }] });
  expect(sent.get("timestamp_granularities[]")).toEqual(["word"]);
});

test("uploads the file with the options", async () => {
  answer = stream(DONE);
  const options = { language: "de", task: "translate", prompt: "Kowalski", hotwords: ["a", "b"], beam_size: 5, apiKey: "k" } as const;
  await collect(transcribeFile(url, new File(["audio"], "talk.mp3"), options));
  expect(request).toEqual({ url: "/v1/audio/translations", authorization: "Bearer k" });
  expect(Object.fromEntries(sent)).toEqual({
    stream: ["true"], response_format: ["verbose_json"], language: ["de"], prompt: ["Kowalski"],
    keywords: ["a", "b"], beam_size: ["5"], file: ["talk.mp3: audio"],
  });
});

test("sends no option that is null, as a live session may have it", async () => {
  answer = stream(DONE);
  const options = { model: null, language: null, beam_size: null, speakers: null };
  await collect(transcribeFile(url, new File(["audio"], "talk.mp3"), options));
  expect([...sent.keys()]).toEqual(["stream", "response_format", "language", "prompt", "file"]);
});

test("asks a function for the key before the upload", async () => {
  answer = stream(DONE);
  await collect(transcribeFile(url, bytes, { apiKey: async () => "k" }));
  expect(request).toEqual({ url: "/v1/audio/transcriptions", authorization: "Bearer k" });
  const cause = new Error("logged out");
  const rejected = collect(transcribeFile(url, bytes, { apiKey: () => Promise.reject(cause) }));
  await expect(rejected).rejects.toMatchObject({ name: "ConnectError", code: "no_api_key", cause });
  const signal = AbortSignal.abort();
  const aborted = collect(transcribeFile(url, bytes, { apiKey: () => new Promise(() => {}), signal }));
  await expect(aborted).rejects.toMatchObject({ name: "AbortedError" });
});

test.each([
  [{ speakers: { max: 2 } }, { max_speakers: ["2"] }, 0],
  [{ channel_names: ["A", "B"] }, { channel_names: ["A", "B"] }, 1],
] satisfies [FileOptions, object, number][])("tells speakers apart with %j", async (options, fields, channel) => {
  const word = { word: "Bye.", start: 4, end: 5, confidence: 0.8 };
  const { utterance: _, ...spoken } = { ...HELLO, id: "seg_0", speaker: "A", words: [] };
  answer = stream(spoken, { ...spoken, id: "seg_1", start: 4, end: 5, text: "Bye.", speaker: "B", words: [word] }, DONE);
  const events = await collect(transcribeFile(url, bytes, { ...options, words: true }));
  expect(Object.fromEntries(sent)).toMatchObject({
    response_format: ["diarized_json"], "timestamp_granularities[]": ["word"], ...fields,
  });
  expect(events.map(({ type }) => type)).toEqual(["segment", "utterance", "segment", "utterance", "stopped"]);
  expect(events[0]).toMatchObject({ utterance: 0, id: 0, channel: 0, speaker: "A", text: "Hello there." });
  expect(events[2]).toMatchObject({ utterance: 1, id: 1, channel, speaker: "B", words: [{ word: "Bye.", start_s: 4 }] });
  expect(events[3]).toMatchObject({ utterance: 1, channel, speaker: "B", text: "Bye." });
});

test("gives each of two speakers at once the times of its own", async () => {
  const { utterance: _, ...spoken } = { ...HELLO, speaker: "agent", words: [], start: 1, end: 10 };
  answer = stream(spoken, { ...spoken, speaker: "caller", start: 2, end: 3 }, DONE);
  const events = await collect(transcribeFile(url, bytes, { channel_names: ["agent", "caller"] }));
  const utterances = events.filter(({ type }) => type === "utterance");
  expect(utterances).toMatchObject([{ start_s: 1, end_s: 10 }, { start_s: 2, end_s: 3 }]);
});

test("no audio after the beginning of the newest stretch is final: text of another channel may follow", async () => {
  const { utterance: _, ...spoken } = { ...HELLO, speaker: "agent", words: [], start: 1, end: 10 };
  answer = stream(spoken, { ...spoken, speaker: "caller", start: 2, end: 3 });
  const events = transcribeFile(url, bytes, { channel_names: ["agent", "caller"] });
  await events.next();
  expect((await events.next()).value).toMatchObject({ type: "utterance", final_until_s: 1, resume_from_s: [1] });
  await expect(collect(events)).rejects.toMatchObject({ code: "connection_lost", finalUntilS: 2 });
});

test.each([
  [{ speakers: {}, task: "translate" }, /task: expected transcribe where speakers/],
  [{ speakers: {}, channel_names: ["a", "b"] }, /speakers: expected no value beside channel_names/],
] satisfies [FileOptions, RegExp][])("refuses %j", async (options, message) => {
  await expect(collect(transcribeFile(url, bytes, options))).rejects.toThrow(message);
});

test.each([
  ["a path", (path: string) => path],
  ["a file URL", (path: string) => pathToFileURL(path)],
])("opens %s in Node", async (_, source) => {
  answer = stream(DONE);
  const path = join(folder, "talk.mp3");
  await writeFile(path, "audio");
  await collect(transcribeFile(url, source(path)));
  expect(sent.get("file")).toEqual(["talk.mp3: audio"]);
});

test("refuses a path that does not exist, a folder, and any path in a browser", async () => {
  await expect(collect(transcribeFile(url, "no.mp3"))).rejects.toThrow(/file: no.mp3 cannot be opened/);
  await expect(collect(transcribeFile(url, folder))).rejects.toMatchObject({ code: "bad_file" });
  vi.stubGlobal("process", undefined);
  await expect(collect(transcribeFile(url, "no.mp3"))).rejects.toThrow(/this environment opens no paths/);
});

test("keeps the place and the query of the server's address", async () => {
  answer = stream(DONE);
  await collect(transcribeFile(`${url}/asr/v1/stream?a=1`, bytes));
  expect(request.url).toBe("/asr/v1/audio/transcriptions?a=1");
  await expect(collect(transcribeFile(`${url}/elsewhere`, bytes))).rejects.toThrow(/ends in \/v1\/stream/);
});

test("refuses options that a file does not have", async () => {
  const options = { start: { language: "en" } } as object;
  await expect(collect(transcribeFile(url, bytes, options))).rejects.toThrow(UsageError);
  const task = { task: "summarize" } as object;
  await expect(collect(transcribeFile(url, bytes, task))).rejects.toThrow(/task: expected transcribe or translate/);
});

test("reports progress when it changes", async () => {
  answer = stream(HELLO, BYE, DONE);
  const reports: FileProgress[] = [];
  await collect(transcribeFile(url, bytes, { onProgress: (progress) => reports.push(progress) }));
  expect(reports.map(({ sentBytes, finalUntilS }) => [sentBytes, finalUntilS])).toEqual([
    [5, 0],
    [5, 1.25],
    [5, 5],
    [5, 6],
  ]);
  expect(reports[0]?.totalBytes).toBe(5);
});

test("a refusal has the server's status, code and message", async () => {
  answer = (response) => response.writeHead(400).end('{"error": {"code": "invalid_file", "message": "no audio"}}');
  const error = await collect(transcribeFile(url, bytes)).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(RequestError);
  expect(error).toMatchObject({ code: "invalid_file", message: "no audio", status: 400 });
  answer = (response) => response.writeHead(502).end("<html>");
  await expect(collect(transcribeFile(url, bytes))).rejects.toMatchObject({ code: "refused", status: 502 });
});

test.each([
  ["a failure of the server", SessionError, [HELLO, { error: { code: "engine_failed", message: "our fault" } }]],
  ["an answer that breaks off", ConnectionLost, [HELLO]],
  ["a segment without a time", ProtocolError, [HELLO, { ...BYE, end: null }]],
  ["a word that is none", ProtocolError, [HELLO, { ...BYE, words: [3] }]],
  ["a server that streams text alone", ProtocolError, [HELLO, { type: "transcript.text.done", text: "Hello" }]],
])("throws after the events before: %s", async (_, kind, messages) => {
  answer = stream(...messages);
  const events: FileEvent[] = [];
  const reading = (async () => {
    for await (const event of transcribeFile(url, bytes)) {
      events.push(event);
    }
  })();
  await expect(reading).rejects.toBeInstanceOf(kind);
  expect(events[0]).toEqual(SEGMENT);
});

test("a connection that is lost during the answer is lost, and was not refused", async () => {
  answer = (response) => {
    response.writeHead(200);
    response.write(frame(HELLO), () => response.destroy());
  };
  const events = transcribeFile(url, bytes);
  expect((await events.next()).value).toEqual(SEGMENT);
  const error = await events.next().catch((e: unknown) => e);
  expect(error).toBeInstanceOf(ConnectionLost);
  expect(error).toMatchObject({ code: "connection_lost", finalUntilS: 1.25 });
});

test("a server that cannot be reached is a ConnectError", async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await expect(collect(transcribeFile(url, bytes))).rejects.toBeInstanceOf(ConnectError);
  server.listen(0);
});

/** The server begins its answer, and then waits. Resolves when the client has left it. */
function answerHalf(): Promise<void> {
  return new Promise((resolve) => {
    answer = (response) => {
      response.on("close", resolve);
      response.writeHead(200).write(frame(HELLO));
    };
  });
}

test("the signal cancels the upload, and later the answer", async () => {
  await expect(collect(transcribeFile(url, bytes, { signal: AbortSignal.abort() }))).rejects.toBeInstanceOf(AbortedError);
  const controller = new AbortController();
  const closed = answerHalf();
  const events = transcribeFile(url, bytes, { signal: controller.signal });
  expect((await events.next()).value).toEqual(SEGMENT);
  controller.abort();
  await expect(events.next()).rejects.toBeInstanceOf(AbortedError);
  await closed;
});

test("leaving the loop ends the request", async () => {
  const closed = answerHalf();
  for await (const event of transcribeFile(url, bytes)) {
    expect(event).toEqual(SEGMENT);
    break;
  }
  await closed;
});

class FakeXhr {
  static readonly HEADERS_RECEIVED = 2;
  static made: FakeXhr[] = [];
  readyState = 0;
  status = 0;
  responseText = "";
  form: FormData | undefined;
  isAborted = false;
  ignored: string | null = null;
  readonly headers: Record<string, string> = {};
  readonly upload: Record<"onprogress" | "onload", ((event: object) => void) | null> = { onprogress: null, onload: null };
  onreadystatechange: (() => void) | null = null;
  onprogress: (() => void) | null = null;
  onload: (() => void) | null = null;
  onerror: (() => void) | null = null;
  onabort: (() => void) | null = null;
  onloadend: (() => void) | null = null;
  constructor() {
    FakeXhr.made.push(this);
  }
  open(method: string, target: string): void {
    expect([method, target]).toEqual(["POST", "http://server/v1/audio/transcriptions"]);
  }
  setRequestHeader(name: string, value: string): void {
    this.headers[name] = value;
  }
  getResponseHeader(name: string): string | null {
    return name === "x-tutti-ignored" ? this.ignored : null;
  }
  send(form: FormData): void {
    this.form = form;
  }
  abort(): void {
    if (!this.isAborted && this.readyState !== 4) {
      this.isAborted = true;
      this.onabort?.();
      this.onloadend?.();
    }
  }
  begin(status: number): void {
    this.status = status;
    this.readyState = FakeXhr.HEADERS_RECEIVED;
    this.onreadystatechange?.();
  }
  receive(text: string): void {
    this.responseText += text;
    this.onprogress?.();
  }
  end(): void {
    this.readyState = 4;
    this.onload?.();
    this.onloadend?.();
  }
}

/** Starts to transcribe a file in a browser, and waits until the request has been sent. */
async function inBrowser(options: FileOptions = {}) {
  FakeXhr.made = [];
  vi.stubGlobal("XMLHttpRequest", FakeXhr);
  const events = transcribeFile("http://server", new Blob(["12345678"]), options);
  const first = events.next();
  first.catch(() => {});
  await vi.waitFor(() => expect(FakeXhr.made[0]?.form).toBeDefined());
  return { events, first, xhr: FakeXhr.made[0] as FakeXhr };
}

test("a browser reports the upload as it goes on, and delivers segments at once", async () => {
  const sizes: number[] = [];
  const onProgress = (progress: FileProgress) => void sizes.push(progress.sentBytes);
  const { events, first, xhr } = await inBrowser({ apiKey: "k", onProgress });
  expect(xhr.headers).toEqual({ authorization: "Bearer k", "content-type": expect.stringMatching(/^multipart\/form-data; boundary=/) });
  xhr.upload.onprogress?.({ loaded: 50, total: 200 });
  xhr.upload.onload?.({});
  xhr.begin(200);
  xhr.receive(frame(HELLO).slice(0, 9));
  xhr.receive(frame(HELLO).slice(9));
  expect(await first).toEqual({ value: SEGMENT, done: false });
  xhr.receive(frame(DONE));
  xhr.end();
  expect((await collect(events)).map((event) => event.type)).toEqual(["utterance", "stopped"]);
  expect(sizes).toEqual([2, 8, 8, 8]);
});

test("a browser ends the request when the signal fires", async () => {
  const controller = new AbortController();
  const { first, xhr } = await inBrowser({ signal: controller.signal });
  controller.abort();
  await expect(first).rejects.toBeInstanceOf(AbortedError);
  expect(xhr.isAborted).toBe(true);
});

test("a browser ends the request when the loop is left", async () => {
  const { events, first, xhr } = await inBrowser();
  xhr.begin(200);
  xhr.receive(frame(HELLO));
  await first;
  await events.return();
  expect(xhr.isAborted).toBe(true);
});

test("a browser reports that the network failed", async () => {
  const { first, xhr } = await inBrowser();
  xhr.onerror?.();
  await expect(first).rejects.toBeInstanceOf(ConnectError);
});

test("a server that falls silent is given up, but not while the application works on an event", async () => {
  const { events, first, xhr } = await inBrowser({ timeoutMs: 1000 });
  vi.useFakeTimers();
  xhr.begin(200);
  xhr.receive(frame(HELLO));
  await first;
  await vi.advanceTimersByTimeAsync(5000);
  const second = events.next();
  second.catch(() => {});
  await vi.advanceTimersByTimeAsync(999);
  expect(xhr.isAborted).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  const error = await second.catch((e: unknown) => e);
  expect(error).toBeInstanceOf(ConnectionLost);
  expect(error).toMatchObject({ code: "timeout", finalUntilS: 1.25 });
});
