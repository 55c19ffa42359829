import { withoutSegment } from "../captions.js";
import { SpeakerTimeline } from "../speakers.js";
const MAX_LINES = 20_000;
class Line {
    #translations;
    constructor(utterance, channel, start_s) {
        this.index = -1;
        this.text = "";
        this.changing = "";
        this.isCut = false;
        this.segments = "";
        this.lastSegment = -1;
        this.#translations = new Map();
        this.utterance = utterance;
        this.channel = channel;
        this.start_s = this.end_s = start_s;
    }
    translation(language) {
        return this.#translations
            .get(language)
            ?.map((part) => part.text)
            .join("");
    }
    retract() {
        this.text = this.changing = "";
        this.#translations.clear();
    }
    translate(part) {
        const parts = this.#translations.get(part.language) ?? [];
        if (parts.some((known) => known.start_s <= part.start_s && part.end_s <= known.end_s)) {
            return false;
        }
        const others = parts.filter((known) => known.start_s < part.start_s || part.end_s < known.end_s);
        this.#translations.set(part.language, [...others, part]);
        return true;
    }
}
export class Transcript {
    #lines = [];
    #first = 0;
    #byUtterance = new Map();
    #open = new Set();
    #spoken = new Map();
    #languages = new Set();
    #speakers = new SpeakerTimeline();
    get lines() {
        return this.#lines.filter(hasContent);
    }
    get open() {
        return [...this.#open];
    }
    get languages() {
        return [...this.#languages];
    }
    get end() {
        return this.#first + this.#lines.length;
    }
    get first() {
        return this.#first;
    }
    at(index) {
        return this.#lines[index - this.#first];
    }
    apply(event) {
        switch (event.type) {
            case "started":
                return this.endSession();
            case "interim":
                return this.#change(event.utterance, event.channel, event.start_s, (line) => {
                    line.text = line.segments + event.stable;
                    line.changing = event.tail;
                    line.speaker = event.speaker ?? line.speaker;
                    return true;
                });
            case "segment":
                return this.#change(event.utterance, event.channel, event.start_s, (line) => {
                    if (event.id <= line.lastSegment) {
                        return false;
                    }
                    const rest = withoutSegment(event.text, line.text.slice(line.segments.length), line.changing);
                    line.lastSegment = event.id;
                    line.segments += event.text;
                    line.text = line.segments + rest.stable;
                    line.changing = rest.tail;
                    line.speaker = this.#speakers.speakerOf(line.start_s, event.end_s) ?? line.speaker ?? event.speaker;
                    this.#noteLanguage(line, event.language);
                    return event.text;
                });
            case "utterance":
                return this.#change(event.utterance, event.channel, event.start_s, (line) => {
                    const spoken = line.lastSegment < 0 ? event.text : true;
                    line.text = event.text;
                    line.end_s = event.end_s;
                    line.speaker = this.#speakers.speakerOf(line.start_s, line.end_s) ?? line.speaker ?? event.speaker;
                    this.#noteLanguage(line, event.language);
                    this.#settle(line);
                    return spoken;
                });
            case "translation":
                return this.#translate(event);
            case "speakers":
                return this.#relabel(this.#speakers.apply(event));
            case "resumed":
                return event.gap === null ? [] : this.#addGap(event.gap);
            case "retract":
                return this.#retract(event.utterance);
            default:
                return [];
        }
    }
    endSession() {
        const changes = this.open.map((open) => {
            const line = open;
            line.isCut = true;
            this.#settle(line);
            return this.#changed(line, "");
        });
        this.#byUtterance.clear();
        this.#speakers = new SpeakerTimeline();
        return changes;
    }
    clear() {
        this.#first = this.end;
        this.#lines = [];
        this.#open.clear();
        this.#byUtterance.clear();
        this.#spoken.clear();
        this.#languages.clear();
        this.#speakers = new SpeakerTimeline();
    }
    #change(utterance, channel, startS, change) {
        const line = this.#byUtterance.get(utterance) ?? this.#begin(utterance, channel, startS);
        const spoken = this.#open.has(line) && change(line);
        return spoken === false ? [] : [this.#changed(line, spoken === true ? "" : spoken)];
    }
    #changed(line, spoken) {
        const kind = this.#open.has(line) ? "open" : line.index < 0 ? "removed" : "final";
        return { line, kind, spoken, language: line.language };
    }
    #begin(utterance, channel, startS) {
        const line = new Line(utterance, channel, startS);
        line.language = this.#spoken.get(channel);
        this.#byUtterance.set(utterance, line);
        this.#open.add(line);
        if (this.#byUtterance.size > MAX_LINES) {
            const [oldest] = this.#byUtterance.keys();
            this.#byUtterance.delete(oldest);
        }
        return line;
    }
    #settle(line) {
        line.changing = "";
        this.#open.delete(line);
        if (hasContent(line)) {
            line.index = this.end;
            this.#lines.push(line);
            if (this.#lines.length > MAX_LINES) {
                this.#lines.shift();
                this.#first += 1;
            }
        }
    }
    #addGap(gap) {
        const line = new Line(-1, 0, gap[0]);
        line.gap = gap;
        line.end_s = gap[1];
        this.#settle(line);
        return [this.#changed(line, "")];
    }
    #translate(event) {
        const line = this.#byUtterance.get(event.utterance);
        if (line?.translate(event) !== true) {
            return [];
        }
        this.#languages.add(event.language);
        return [{ line, kind: "translated", spoken: event.text, language: event.language }];
    }
    #relabel([fromS, untilS]) {
        const lines = [...this.#byUtterance.values()].filter((line) => line.start_s < untilS && line.end_s > fromS);
        return lines.flatMap((line) => this.#label(line));
    }
    #label(line) {
        const speaker = this.#speakers.speakerOf(line.start_s, line.end_s);
        if (speaker === undefined || speaker === line.speaker) {
            return [];
        }
        line.speaker = speaker;
        return line.index < 0 && !this.#open.has(line) ? [] : [{ line, kind: "labelled", spoken: "", language: line.language }];
    }
    #retract(utterance) {
        const line = this.#byUtterance.get(utterance);
        if (line === undefined) {
            return [];
        }
        this.#byUtterance.delete(utterance);
        this.#open.delete(line);
        line.retract();
        return [{ line, kind: "removed", spoken: "", language: undefined }];
    }
    #noteLanguage(line, language) {
        if (typeof language === "string") {
            line.language = language;
            this.#spoken.set(line.channel, language);
        }
    }
}
function hasContent(line) {
    return line.text.trim() !== "" || line.gap !== undefined;
}
