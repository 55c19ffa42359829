/**
 * Transcribes a file: uploads it over HTTP and delivers its segments while the rest is still being transcribed. The
 * server decodes the file, so every format that the server knows will do.
 */

import { LONGEST_MS } from "./clock.js";
import { CLOSE_ABNORMAL } from "./connection.js";
import { ConnectError, ConnectionLost, ProtocolError, RequestError, SessionError, UsageError } from "./errors.js";
import { isRecord, parseEvent, parseJson } from "./events.js";
import type { SegmentEvent, StartOptions, StoppedEvent, UtteranceEvent, WarningEvent } from "./events.js";
import { type BlobLike, type Bytes, type Form, formOf } from "./form.js";
import { type Answer, upload } from "./http.js";
import type { ApiKey } from "./options.js";
import { type Address, askForKey, httpUrl, streamUrl } from "./server.js";
import { OwnSignal, type Signal } from "./signal.js";

const PATHS = { transcribe: "/v1/audio/transcriptions", translate: "/v1/audio/translations" };
/** Default of `timeoutMs`: four of the server's comments, which it sends every 15 s when it has nothing else to send. */
const TIMEOUT_MS = 60_000;

/** The bytes of an encoded file, or in Node the path of one. */
export type FileSource =
  | BlobLike
  | ArrayBuffer
  | (ArrayBufferView & Pick<Bytes, "buffer">)
  | string
  | { readonly href: string };

/** The events of a file, as in a live session. All have channel 0, but with `channel_names` that of their speaker. */
export type FileEvent = SegmentEvent | UtteranceEvent | WarningEvent | StoppedEvent;

/** How far a file is. */
export interface FileProgress {
  /** How much of the file has been uploaded. Only browsers tell it before all has been. */
  readonly sentBytes: number;
  readonly totalBytes: number;
  /** Audio before this time, in seconds, has been transcribed. */
  readonly finalUntilS: number;
}

/**
 * The options of `transcribeFile`. Options of `start` mean the same as in a live session. With `speakers` or
 * `channel_names` all text comes at the end, and each stretch of one speaker is an utterance.
 */
export interface FileOptions extends Pick<StartOptions, "model" | "language" | "languages" | "task" | "words" | "prompt" | "hotwords" | "beam_size" | "speakers" | "channel_names"> {
  /** The API key, or a function that is asked for it. */
  readonly apiKey?: ApiKey | undefined;
  /** Cancels the upload and the transcription. */
  readonly signal?: Signal | undefined;
  /** Called whenever there is news. */
  readonly onProgress?: ((progress: FileProgress) => void) | undefined;
  /** How long the server may be silent once its answer has begun, in milliseconds. Default: 60 s. */
  readonly timeoutMs?: number | undefined;
}

const OPTIONS = ["model", "language", "languages", "task", "words", "prompt", "hotwords", "beam_size", "speakers", "channel_names", "apiKey", "signal", "onProgress", "timeoutMs"];

/**
 * Transcribes a file. Leaving the loop over its events cancels the work.
 *
 * @param url `ws:`, `wss:`, `http:` or `https:`, as for `connect`.
 * @param source a `File` or `Blob`, the bytes of a file, or in Node a path or a `file:` URL.
 * @throws UsageError, ConnectError, RequestError (the server refused the file), SessionError (the server failed),
 *   ConnectionLost, ProtocolError, AbortedError: each of them after the events before it.
 */
export async function* transcribeFile(
  url: Address,
  source: FileSource,
  options: FileOptions = {},
): AsyncGenerator<FileEvent, void, undefined> {
  checkOptions(options);
  const target = httpUrl(streamUrl(url), PATHS[options.task ?? "transcribe"]);
  const file = await openFile(source);
  const progress = new Progress(file.bytes instanceof Uint8Array ? file.bytes.length : file.bytes.size, options.onProgress);
  const limit = new SilenceLimit(options.timeoutMs ?? TIMEOUT_MS, options.signal);
  const answer = new FileAnswer(options);
  let hasBegun = false;
  try {
    const apiKey = typeof options.apiKey === "function" ? await askForKey(options.apiKey, options) : options.apiKey;
    const response = await upload({
      url: target,
      form: formWith(file, options),
      headers: apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
      signal: limit.signal,
      onUploaded: (share) => progress.onUploaded(share),
    });
    hasBegun = true;
    limit.restart();
    if (response.status !== 200) {
      throw refusal(response.status, await textOf(response));
    }
    yield* withoutEffect(response);
    for await (const message of messages(response, limit)) {
      for (const event of answer.events(message)) {
        progress.onEvent(event);
        yield event;
      }
    }
    if (!answer.isComplete) {
      throw new ConnectionLost("connection_lost", "the answer breaks off", CLOSE_ABNORMAL, answer.finalUntilS);
    }
  } catch (error) {
    if (limit.isOver) {
      const message = `the server sent nothing for ${options.timeoutMs ?? TIMEOUT_MS} ms`;
      throw new ConnectionLost("timeout", message, CLOSE_ABNORMAL, answer.finalUntilS, error);
    }
    if (hasBegun && error instanceof ConnectError) {
      throw new ConnectionLost("connection_lost", "the answer breaks off", CLOSE_ABNORMAL, answer.finalUntilS, error);
    }
    throw error;
  } finally {
    limit.end();
  }
}

function hasSpeakers({ speakers, channel_names = [] }: FileOptions): boolean {
  return Boolean(speakers) || channel_names.length > 0;
}

function checkOptions(options: FileOptions): void {
  for (const name of Object.keys(options)) {
    if (!OPTIONS.includes(name)) {
      throw new UsageError("bad_option", `${name}: expected one of ${OPTIONS.join(", ")}`);
    }
  }
  if (options.task !== undefined && !(options.task in PATHS)) {
    throw new UsageError("bad_option", `task: expected transcribe or translate, got ${JSON.stringify(options.task)}`);
  }
  if (hasSpeakers(options) && options.task === "translate") {
    throw new UsageError("bad_option", "task: expected transcribe where speakers are told apart, got translate");
  }
  if (options.speakers && options.channel_names?.length) {
    throw new UsageError("bad_option", "speakers: expected no value beside channel_names");
  }
}

/** What this module uses of Node. It is not imported, because bundlers for browsers would look for it. */
interface NodeProcess {
  getBuiltinModule?(name: "node:fs"): { openAsBlob(path: string | { readonly href: string }): Promise<NodeBlob> };
}
interface NodeBlob extends BlobLike {
  slice(start?: number, end?: number, type?: string): NodeBlob;
  arrayBuffer(): Promise<unknown>;
}

interface OpenFile {
  readonly bytes: BlobLike | Uint8Array<ArrayBuffer>;
  readonly name: string;
}

async function openFile(source: FileSource): Promise<OpenFile> {
  if (source instanceof ArrayBuffer) {
    return { bytes: new Uint8Array(source), name: "audio" };
  }
  if (ArrayBuffer.isView(source)) {
    return { bytes: new Uint8Array(source.buffer, source.byteOffset, source.byteLength), name: "audio" };
  }
  if (typeof source === "object" && "slice" in source) {
    return { bytes: source, name: (source as { name?: string }).name ?? "audio" };
  }
  const { process } = globalThis as { process?: NodeProcess };
  const fs = process?.getBuiltinModule?.("node:fs");
  if (fs === undefined) {
    throw new UsageError("bad_file", "file: expected a File, a Blob or bytes; this environment opens no paths");
  }
  try {
    // Its bytes are read while they are uploaded. The first one tells whether they can be: a folder's cannot.
    const bytes = await fs.openAsBlob(source);
    await bytes.slice(0, 1).arrayBuffer();
    return { bytes, name: String(source).replace(/^.*[/\\]/, "") };
  } catch (error) {
    throw new UsageError("bad_file", `file: ${String(source)} cannot be opened`, error);
  }
}

function formWith(file: OpenFile, options: FileOptions): Form {
  const { model = "", language = "", languages = [], prompt = "", hotwords = [], words = false, beam_size } = options;
  const { speakers, channel_names = [] } = options;
  const fields = [
    ["stream", "true"],
    ["response_format", hasSpeakers(options) ? "diarized_json" : "verbose_json"],
    ...(speakers?.max === undefined ? [] : [["max_speakers", String(speakers.max)] as const]),
    ...channel_names.map((name) => ["channel_names", name] as const),
    ...(model ? [["model", model] as const] : []),
    ["language", language ?? ""],
    ...languages.map((code) => ["languages", code] as const),
    ["prompt", prompt],
    ...hotwords.map((hotword) => ["keywords", hotword] as const),
    ...(typeof beam_size === "number" ? [["beam_size", String(beam_size)] as const] : []),
    ...(words || hasSpeakers(options) ? [["timestamp_granularities[]", "word"] as const] : []),
  ] as const;
  return formOf(fields, file.bytes, file.name);
}

/** The error for a response that is no stream. Its body is OpenAI's object for errors, unless a proxy wrote it. */
function refusal(status: number, body: string): RequestError {
  let error: unknown;
  try {
    const parsed: unknown = JSON.parse(body);
    error = isRecord(parsed) ? parsed["error"] : undefined;
  } catch {
    error = undefined;
  }
  const { code, message } = isRecord(error) ? error : { code: undefined, message: undefined };
  return new RequestError(
    typeof code === "string" ? code : "refused",
    typeof message === "string" ? message : `the server answered with status ${status}`,
    status,
  );
}

/** The option that a field stands for, where it has another name. */
const OPTION_OF_FIELD: Record<string, string> = { keywords: "hotwords", timestamp_granularities: "words" };

/** A warning for each option that has no effect on this server. */
function* withoutEffect({ ignored }: Answer): Generator<WarningEvent> {
  for (const field of ignored.split(", ").filter(Boolean)) {
    const message = `${OPTION_OF_FIELD[field] ?? field}: has no effect on this server`;
    yield { type: "warning", code: "no_effect", message };
  }
}

async function textOf(response: Answer): Promise<string> {
  let text = "";
  for await (const piece of response.text) {
    text += piece;
  }
  return text;
}

/** The messages of a stream of server-sent events. Comments show that the server is alive. */
async function* messages(response: Answer, limit: SilenceLimit): AsyncGenerator<unknown, void, undefined> {
  let rest = "";
  for await (const piece of response.text) {
    // The application takes its time over the events; what the server sends meanwhile waits.
    limit.pause();
    const frames = (rest + piece).split("\n\n");
    rest = frames.pop() ?? "";
    for (const frame of frames) {
      if (frame.startsWith("data:")) {
        yield parseJson(frame.slice("data:".length));
      }
    }
    limit.restart();
  }
}

/** Turns the messages of the server into the events of a session. */
class FileAnswer {
  isComplete = false;
  finalUntilS = 0;
  /** The utterance of the newest segment. It ends with the first segment of the next one. */
  #open: UtteranceEvent | undefined;

  readonly #options: FileOptions;

  constructor(options: FileOptions) {
    this.#options = options;
  }

  /** @throws SessionError if the message is an error, ProtocolError. */
  *events(message: unknown): Generator<FileEvent> {
    if (!isRecord(message)) {
      throw new ProtocolError("message", "an object", message);
    }
    const { error, type } = message;
    if (isRecord(error)) {
      throw new SessionError(String(error["code"] ?? "error"), String(error["message"]), this.finalUntilS);
    }
    if (type === "transcript.text.segment") {
      yield* this.#segment("speaker" in message ? this.#spoken(message) : message);
    } else if (type === "transcript.text.done") {
      yield* this.#done(message);
    }
  }

  /** A stretch of one speaker, as a segment that is an utterance of its own. */
  #spoken(message: Record<string, unknown>): Record<string, unknown> {
    const number = this.#open === undefined ? 0 : this.#open.utterance + 1;
    const channel = Math.max(0, this.#options.channel_names?.indexOf(String(message["speaker"])) ?? 0);
    const { words, channel_names = [] } = this.#options;
    const listed: unknown = words === true ? message["words"] : [];
    const named = channel_names.length > 0 || !Array.isArray(listed);
    const own = named ? listed : listed.map((word: object) => ({ ...word, speaker: message["speaker"] }));
    return { ...message, utterance: number, id: number, channel, words: own };
  }

  *#segment(message: Record<string, unknown>): Generator<FileEvent> {
    const { utterance, start, end, text, channel = 0 } = message;
    if (this.#open !== undefined && this.#open.utterance !== utterance) {
      yield* this.#endUtterance();
    }
    // A stretch of speech without text has no id, confidence and language.
    const segment = parseEvent({
      id: 0, confidence: 0, language: null, ...message,
      type: "segment", channel, start_s: start, end_s: end, words: timed(message["words"]),
    }) as SegmentEvent;
    // Segments come in the order in which they begin. On another channel, the next one may begin during this one.
    const finalUntilS = this.#options.channel_names?.length ? segment.start_s : segment.end_s;
    this.finalUntilS = Math.max(this.finalUntilS, finalUntilS);
    const before = this.#open;
    this.#open = {
      type: "utterance",
      utterance: segment.utterance,
      channel: segment.channel,
      start_s: before?.start_s ?? segment.start_s,
      end_s: Math.max(before?.end_s ?? 0, segment.end_s),
      text: (before?.text ?? "") + segment.text,
      uncovered: [...(before?.uncovered ?? []), ...(text === "" ? [[segment.start_s, segment.end_s] as const] : [])],
      final_until_s: this.finalUntilS,
      resume_from_s: [this.finalUntilS],
      detector_from_s: [],
      ...(segment.speaker === undefined ? {} : { speaker: segment.speaker }),
    };
    if (text !== "") {
      yield segment;
    }
  }

  *#done(message: Record<string, unknown>): Generator<FileEvent> {
    const { duration, speech_duration, words, warnings = [] } = message;
    if (!Array.isArray(warnings)) {
      throw new ProtocolError("warnings", "a list", warnings);
    }
    for (const warning of warnings as unknown[]) {
      yield parseEvent({ ...(isRecord(warning) ? warning : {}), type: "warning" }) as WarningEvent;
    }
    yield* this.#endUtterance();
    const stopped = parseEvent({ type: "stopped", audio_s: duration, speech_s: speech_duration, words }) as StoppedEvent;
    this.isComplete = true;
    this.finalUntilS = stopped.audio_s;
    yield stopped;
  }

  *#endUtterance(): Generator<FileEvent> {
    if (this.#open !== undefined) {
      yield this.#open;
      this.#open = undefined;
    }
  }
}

/** Words with the names of a live session. What is not a word, `parseEvent` refuses. */
function timed(words: unknown = []): unknown {
  return !Array.isArray(words)
    ? words
    : words.map((word: unknown) => (isRecord(word) ? { ...word, start_s: word["start"], end_s: word["end"] } : word));
}

/** Reports the progress of a file when it changes. */
class Progress {
  readonly #report: ((progress: FileProgress) => void) | undefined;
  #now: FileProgress;

  constructor(totalBytes: number, report: ((progress: FileProgress) => void) | undefined) {
    this.#report = report;
    this.#now = { sentBytes: 0, totalBytes, finalUntilS: 0 };
  }

  /** The share of the form, in which the file is nearly all, counts as the share of the file. */
  onUploaded(share: number): void {
    this.#change({ sentBytes: Math.round(share * this.#now.totalBytes) });
  }

  onEvent(event: FileEvent): void {
    if (event.type === "warning") {
      return;
    }
    const finalUntilS = event.type === "stopped" ? event.audio_s : event.end_s;
    this.#change({ finalUntilS: Math.max(finalUntilS, this.#now.finalUntilS) });
  }

  #change(changed: Partial<FileProgress>): void {
    const now = { ...this.#now, ...changed };
    if (now.sentBytes !== this.#now.sentBytes || now.finalUntilS !== this.#now.finalUntilS) {
      this.#now = now;
      this.#report?.(now);
    }
  }
}

/** A signal that fires when the caller's does, when `restart` is not called for some time, and at the end. */
class SilenceLimit {
  isOver = false;
  readonly signal = new OwnSignal();
  readonly #timeoutMs: number;
  readonly #source: Signal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #onAbort = () => this.signal.abort(this.#source?.reason);

  constructor(timeoutMs: number, source: Signal | undefined) {
    this.#timeoutMs = timeoutMs;
    this.#source = source;
    source?.addEventListener("abort", this.#onAbort);
    if (source?.aborted === true) {
      this.#onAbort();
    }
  }

  /** There is no limit before the first call: nothing tells how long an upload takes. */
  restart(): void {
    this.pause();
    this.#timer = setTimeout(() => {
      this.isOver = true;
      this.signal.abort();
    }, Math.min(this.#timeoutMs, LONGEST_MS));
  }

  pause(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.pause();
    this.#source?.removeEventListener("abort", this.#onAbort);
    this.signal.abort();
  }
}
