import { LONGEST_MS } from "./clock.js";
import { CLOSE_ABNORMAL } from "./connection.js";
import { ConnectError, ConnectionLost, ProtocolError, RequestError, SessionError, UsageError } from "./errors.js";
import { isRecord, parseEvent, parseJson } from "./events.js";
import { formOf } from "./form.js";
import { upload } from "./http.js";
import { askForKey, httpUrl, streamUrl } from "./server.js";
import { OwnSignal } from "./signal.js";
const PATHS = { transcribe: "/v1/audio/transcriptions", translate: "/v1/audio/translations" };
const TIMEOUT_MS = 60_000;
const OPTIONS = ["model", "language", "languages", "task", "words", "prompt", "hotwords", "beam_size", "speakers", "channel_names", "apiKey", "signal", "onProgress", "timeoutMs"];
export async function* transcribeFile(url, source, options = {}) {
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
    }
    catch (error) {
        if (limit.isOver) {
            const message = `the server sent nothing for ${options.timeoutMs ?? TIMEOUT_MS} ms`;
            throw new ConnectionLost("timeout", message, CLOSE_ABNORMAL, answer.finalUntilS, error);
        }
        if (hasBegun && error instanceof ConnectError) {
            throw new ConnectionLost("connection_lost", "the answer breaks off", CLOSE_ABNORMAL, answer.finalUntilS, error);
        }
        throw error;
    }
    finally {
        limit.end();
    }
}
function hasSpeakers({ speakers, channel_names = [] }) {
    return Boolean(speakers) || channel_names.length > 0;
}
function checkOptions(options) {
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
async function openFile(source) {
    if (source instanceof ArrayBuffer) {
        return { bytes: new Uint8Array(source), name: "audio" };
    }
    if (ArrayBuffer.isView(source)) {
        return { bytes: new Uint8Array(source.buffer, source.byteOffset, source.byteLength), name: "audio" };
    }
    if (typeof source === "object" && "slice" in source) {
        return { bytes: source, name: source.name ?? "audio" };
    }
    const { process } = globalThis;
    const fs = process?.getBuiltinModule?.("node:fs");
    if (fs === undefined) {
        throw new UsageError("bad_file", "file: expected a File, a Blob or bytes; this environment opens no paths");
    }
    try {
        const bytes = await fs.openAsBlob(source);
        await bytes.slice(0, 1).arrayBuffer();
        return { bytes, name: String(source).replace(/^.*[/\\]/, "") };
    }
    catch (error) {
        throw new UsageError("bad_file", `file: ${String(source)} cannot be opened`, error);
    }
}
function formWith(file, options) {
    const { model = "", language = "", languages = [], prompt = "", hotwords = [], words = false, beam_size } = options;
    const { speakers, channel_names = [] } = options;
    const fields = [
        ["stream", "true"],
        ["response_format", hasSpeakers(options) ? "diarized_json" : "verbose_json"],
        ...(speakers?.max === undefined ? [] : [["max_speakers", String(speakers.max)]]),
        ...channel_names.map((name) => ["channel_names", name]),
        ...(model ? [["model", model]] : []),
        ["language", language ?? ""],
        ...languages.map((code) => ["languages", code]),
        ["prompt", prompt],
        ...hotwords.map((hotword) => ["keywords", hotword]),
        ...(typeof beam_size === "number" ? [["beam_size", String(beam_size)]] : []),
        ...(words || hasSpeakers(options) ? [["timestamp_granularities[]", "word"]] : []),
    ];
    return formOf(fields, file.bytes, file.name);
}
function refusal(status, body) {
    let error;
    try {
        const parsed = JSON.parse(body);
        error = isRecord(parsed) ? parsed["error"] : undefined;
    }
    catch {
        error = undefined;
    }
    const { code, message } = isRecord(error) ? error : { code: undefined, message: undefined };
    return new RequestError(typeof code === "string" ? code : "refused", typeof message === "string" ? message : `the server answered with status ${status}`, status);
}
function* withoutEffect({ ignored }) {
    for (const name of ignored.split(", ").filter(Boolean)) {
        yield { type: "warning", code: "no_effect", message: `${name}: has no effect on this server` };
    }
}
async function textOf(response) {
    let text = "";
    for await (const piece of response.text) {
        text += piece;
    }
    return text;
}
async function* messages(response, limit) {
    let rest = "";
    for await (const piece of response.text) {
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
class FileAnswer {
    #open;
    #options;
    constructor(options) {
        this.isComplete = false;
        this.finalUntilS = 0;
        this.#options = options;
    }
    *events(message) {
        if (!isRecord(message)) {
            throw new ProtocolError("message", "an object", message);
        }
        const { error, type } = message;
        if (isRecord(error)) {
            throw new SessionError(String(error["code"] ?? "error"), String(error["message"]), this.finalUntilS);
        }
        if (type === "transcript.text.segment") {
            yield* this.#segment("speaker" in message ? this.#spoken(message) : message);
        }
        else if (type === "transcript.text.done") {
            yield* this.#done(message);
        }
    }
    #spoken(message) {
        const number = this.#open === undefined ? 0 : this.#open.utterance + 1;
        const channel = Math.max(0, this.#options.channel_names?.indexOf(String(message["speaker"])) ?? 0);
        const { words, channel_names = [] } = this.#options;
        const listed = words === true ? message["words"] : [];
        const named = channel_names.length > 0 || !Array.isArray(listed);
        const own = named ? listed : listed.map((word) => ({ ...word, speaker: message["speaker"] }));
        return { ...message, utterance: number, id: number, channel, words: own };
    }
    *#segment(message) {
        const { utterance, start, end, text, channel = 0 } = message;
        if (this.#open !== undefined && this.#open.utterance !== utterance) {
            yield* this.#endUtterance();
        }
        const segment = parseEvent({
            id: 0, confidence: 0, language: null, ...message,
            type: "segment", channel, start_s: start, end_s: end, words: timed(message["words"]),
        });
        this.finalUntilS = Math.max(this.finalUntilS, segment.end_s);
        const before = this.#open;
        this.#open = {
            type: "utterance",
            utterance: segment.utterance,
            channel: segment.channel,
            start_s: before?.start_s ?? segment.start_s,
            end_s: Math.max(before?.end_s ?? 0, segment.end_s),
            text: (before?.text ?? "") + segment.text,
            uncovered: [...(before?.uncovered ?? []), ...(text === "" ? [[segment.start_s, segment.end_s]] : [])],
            final_until_s: this.finalUntilS,
            resume_from_s: [this.finalUntilS],
            detector_from_s: [],
            ...(segment.speaker === undefined ? {} : { speaker: segment.speaker }),
        };
        if (text !== "") {
            yield segment;
        }
    }
    *#done(message) {
        const { duration, speech_duration, words, warnings = [] } = message;
        if (!Array.isArray(warnings)) {
            throw new ProtocolError("warnings", "a list", warnings);
        }
        for (const warning of warnings) {
            yield parseEvent({ ...(isRecord(warning) ? warning : {}), type: "warning" });
        }
        yield* this.#endUtterance();
        const stopped = parseEvent({ type: "stopped", audio_s: duration, speech_s: speech_duration, words });
        this.isComplete = true;
        this.finalUntilS = stopped.audio_s;
        yield stopped;
    }
    *#endUtterance() {
        if (this.#open !== undefined) {
            yield this.#open;
            this.#open = undefined;
        }
    }
}
function timed(words = []) {
    return !Array.isArray(words)
        ? words
        : words.map((word) => (isRecord(word) ? { ...word, start_s: word["start"], end_s: word["end"] } : word));
}
class Progress {
    #report;
    #now;
    constructor(totalBytes, report) {
        this.#report = report;
        this.#now = { sentBytes: 0, totalBytes, finalUntilS: 0 };
    }
    onUploaded(share) {
        this.#change({ sentBytes: Math.round(share * this.#now.totalBytes) });
    }
    onEvent(event) {
        if (event.type === "warning") {
            return;
        }
        const finalUntilS = event.type === "stopped" ? event.audio_s : event.end_s;
        this.#change({ finalUntilS: Math.max(finalUntilS, this.#now.finalUntilS) });
    }
    #change(changed) {
        const now = { ...this.#now, ...changed };
        if (now.sentBytes !== this.#now.sentBytes || now.finalUntilS !== this.#now.finalUntilS) {
            this.#now = now;
            this.#report?.(now);
        }
    }
}
class SilenceLimit {
    #timeoutMs;
    #source;
    #timer;
    #onAbort;
    constructor(timeoutMs, source) {
        this.isOver = false;
        this.signal = new OwnSignal();
        this.#onAbort = () => this.signal.abort(this.#source?.reason);
        this.#timeoutMs = timeoutMs;
        this.#source = source;
        source?.addEventListener("abort", this.#onAbort);
        if (source?.aborted === true) {
            this.#onAbort();
        }
    }
    restart() {
        this.pause();
        this.#timer = setTimeout(() => {
            this.isOver = true;
            this.signal.abort();
        }, Math.min(this.#timeoutMs, LONGEST_MS));
    }
    pause() {
        clearTimeout(this.#timer);
    }
    end() {
        this.pause();
        this.#source?.removeEventListener("abort", this.#onAbort);
        this.signal.abort();
    }
}
