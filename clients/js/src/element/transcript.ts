/**
 * The text of one or more sessions as lines, an utterance each, with their translations. An event that comes a second
 * time changes nothing, so the history of a room may be sent again. Nothing of the browser is used here.
 */

import { withoutSegment } from "../captions.js";
import { SpeakerTimeline } from "../speakers.js";
import type { CaptionEvent, Translation } from "./events.js";

/** More lines than a person says in a day. The oldest ones are forgotten after that. */
const MAX_LINES = 20_000;

/** An utterance. The object stays the same while its text grows. */
export interface CaptionLine {
  /** Counts the final lines, from 0, in the order in which they ended; -1 while the line is open. */
  readonly index: number;
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  /** Where it ended; while it is open, `start_s`. */
  readonly end_s: number;
  /** Text that does not change any more. Without `changing`, all of it. */
  readonly text: string;
  /** The text after `text`, which may still change; empty when the line is final. */
  readonly changing: string;
  /** The code of the language that was spoken, once it is known. */
  readonly language: string | undefined;
  /** Who speaks: the name of the channel, or a letter, which may change; undefined where nothing is known. */
  readonly speaker: string | undefined;
  /** Whether the line has lost its end: the session ended before its text was final. */
  readonly isCut: boolean;
  /** Not an utterance, but audio, `[from_s, until_s]`, that was lost with the connection: it has no text. */
  readonly gap: readonly [number, number] | undefined;
  /** The translation into a language, as far as there is one. */
  translation(language: string): string | undefined;
}

/** What an event has done to a line. `spoken` is text that has become final with it and was not final before. */
export interface Change {
  readonly line: CaptionLine;
  readonly kind: "open" | "final" | "removed" | "translated" | "labelled";
  readonly spoken: string;
  /** The language of `spoken`. */
  readonly language: string | undefined;
}

class Line implements CaptionLine {
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  index = -1;
  end_s: number;
  text = "";
  changing = "";
  language: string | undefined;
  speaker: string | undefined;
  isCut = false;
  gap: readonly [number, number] | undefined;
  /** How much of `text` is the text of segments. The rest is stable text of the newest interim. */
  segments = "";
  lastSegment = -1;
  readonly #translations = new Map<string, Translation[]>();

  constructor(utterance: number, channel: number, start_s: number) {
    this.utterance = utterance;
    this.channel = channel;
    this.start_s = this.end_s = start_s;
  }

  translation(language: string): string | undefined {
    return this.#translations
      .get(language)
      ?.map((part) => part.text)
      .join("");
  }

  retract(): void {
    this.text = this.changing = "";
    this.#translations.clear();
  }

  /** Adds a part. Returns false if it is known already. */
  translate(part: Translation): boolean {
    const parts = this.#translations.get(part.language) ?? [];
    if (parts.some((known) => known.start_s <= part.start_s && part.end_s <= known.end_s)) {
      return false;
    }
    // The history of a room may have in one part what came in several.
    const others = parts.filter((known) => known.start_s < part.start_s || part.end_s < known.end_s);
    this.#translations.set(part.language, [...others, part]);
    return true;
  }
}

/** The lines of an element. */
export class Transcript {
  #lines: Line[] = [];
  /** The index of the first line that is kept. */
  #first = 0;
  /** The lines of the present session by the numbers of their utterances, also those without text. */
  readonly #byUtterance = new Map<number, Line>();
  readonly #open = new Set<Line>();
  readonly #spoken = new Map<number, string>();
  readonly #languages = new Set<string>();
  #speakers = new SpeakerTimeline();

  /** The final lines, in the order in which they ended. `toSrt` and `toVtt` take them. */
  get lines(): readonly CaptionLine[] {
    return this.#lines.filter(hasContent);
  }

  /** The open lines, in the order in which they began. */
  get open(): readonly CaptionLine[] {
    return [...this.#open];
  }

  /** The languages in which there is a translation of some line. */
  get languages(): readonly string[] {
    return [...this.#languages];
  }

  /** @internal The index after that of the last line. */
  get end(): number {
    return this.#first + this.#lines.length;
  }

  /** @internal The index of the first line. */
  get first(): number {
    return this.#first;
  }

  /** @internal */
  at(index: number): CaptionLine | undefined {
    return this.#lines[index - this.#first];
  }

  /** @internal Applies a checked event. Returns the changes, none if the event is known already. */
  apply(event: CaptionEvent): Change[] {
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

  /** @internal Ends the open lines without what might still have changed. The numbers of utterances are free then. */
  endSession(): Change[] {
    const changes = this.open.map((open) => {
      const line = open as Line;
      line.isCut = true;
      this.#settle(line);
      return this.#changed(line, "");
    });
    this.#byUtterance.clear();
    this.#speakers = new SpeakerTimeline();
    return changes;
  }

  /** @internal */
  clear(): void {
    this.#first = this.end;
    this.#lines = [];
    this.#open.clear();
    this.#byUtterance.clear();
    this.#spoken.clear();
    this.#languages.clear();
    this.#speakers = new SpeakerTimeline();
  }

  /** Changes an open line, or a new one. `change` returns false if it knows the event, or text that is final now. */
  #change(utterance: number, channel: number, startS: number, change: (line: Line) => string | boolean): Change[] {
    const line = this.#byUtterance.get(utterance) ?? this.#begin(utterance, channel, startS);
    const spoken = this.#open.has(line) && change(line);
    return spoken === false ? [] : [this.#changed(line, spoken === true ? "" : spoken)];
  }

  #changed(line: Line, spoken: string): Change {
    const kind = this.#open.has(line) ? "open" : line.index < 0 ? "removed" : "final";
    return { line, kind, spoken, language: line.language };
  }

  #begin(utterance: number, channel: number, startS: number): Line {
    const line = new Line(utterance, channel, startS);
    line.language = this.#spoken.get(channel);
    this.#byUtterance.set(utterance, line);
    this.#open.add(line);
    if (this.#byUtterance.size > MAX_LINES) {
      const [oldest] = this.#byUtterance.keys();
      this.#byUtterance.delete(oldest as number);
    }
    return line;
  }

  /** Makes an open line final. A line without text is no line. */
  #settle(line: Line): void {
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

  #addGap(gap: readonly [number, number]): Change[] {
    const line = new Line(-1, 0, gap[0]);
    line.gap = gap;
    line.end_s = gap[1];
    this.#settle(line);
    return [this.#changed(line, "")];
  }

  #translate(event: Translation): Change[] {
    const line = this.#byUtterance.get(event.utterance);
    if (line?.translate(event) !== true) {
      return [];
    }
    this.#languages.add(event.language);
    return [{ line, kind: "translated", spoken: event.text, language: event.language }];
  }

  /** Notes who speaks the lines between two times. There may be thousands of others, which the event says nothing of. */
  #relabel([fromS, untilS]: readonly [number, number]): Change[] {
    const lines = [...this.#byUtterance.values()].filter((line) => line.start_s < untilS && line.end_s > fromS);
    return lines.flatMap((line) => this.#label(line));
  }

  /** Notes who speaks a line, if it is another speaker than was known. */
  #label(line: Line): Change[] {
    const speaker = this.#speakers.speakerOf(line.start_s, line.end_s);
    if (speaker === undefined || speaker === line.speaker) {
      return [];
    }
    line.speaker = speaker;
    return line.index < 0 && !this.#open.has(line) ? [] : [{ line, kind: "labelled", spoken: "", language: line.language }];
  }

  /** A final line keeps its place, without text: the places of the others stay as they are. */
  #retract(utterance: number): Change[] {
    const line = this.#byUtterance.get(utterance);
    if (line === undefined) {
      return [];
    }
    this.#byUtterance.delete(utterance);
    this.#open.delete(line);
    line.retract();
    return [{ line, kind: "removed", spoken: "", language: undefined }];
  }

  #noteLanguage(line: Line, language: string | null | undefined): void {
    if (typeof language === "string") {
      line.language = language;
      this.#spoken.set(line.channel, language);
    }
  }
}

function hasContent(line: CaptionLine): boolean {
  return line.text.trim() !== "" || line.gap !== undefined;
}
