/**
 * An utterance of a session whose connection may be lost and resumed: what was shown of it, and what of the new
 * connection's text is to be shown. `continuity.ts` says how. This module does no I/O.
 */

import { align, followsWords } from "./align.js";
import type { InterimEvent, SegmentEvent } from "./events.js";
import type { UtteranceWords } from "./utterance_words.js";

/** The name of a channel as events have it; undefined if it has none. */
type Label = { readonly speaker: string } | undefined;

/** An utterance that was announced and has not ended. */
export class OpenUtterance {
  readonly number: number;
  readonly channel: number;
  /** Where it begins, in seconds. */
  readonly atS: number;
  readonly label: Label;
  /** The utterance waits for its counterpart in this connection. */
  isWaiting = false;
  /** The end of the newest interim that was delivered. */
  shownUntilS: number;
  readonly #nHidden: number;
  /** The texts of the segments that were delivered. */
  #final: string;
  /** `#final`, and the stable text that was delivered after it. */
  #shown: string;
  /** The words of the utterance, if they were asked for. */
  readonly #words: UtteranceWords | undefined;
  /** The segments that were delivered, each with `#final` after it. */
  readonly #segments: { readonly segment: SegmentEvent; readonly final: string }[] = [];
  /** The part of `#final` that this connection does not repeat. */
  #kept = "";
  /** The texts of the segments that this connection has sent. */
  #theirFinal = "";
  /** Our text, and the length of theirs, after which both go on alike; undefined if theirs is not so far yet. */
  #joint: { readonly ours: string; readonly nTheirs: number } | undefined;

  /** @param hidden text that the connection may send in this utterance, but which was delivered before it. */
  constructor(number: number, channel: number, atS: number, hidden: string, label?: Label, words?: UtteranceWords) {
    this.number = number;
    this.channel = channel;
    this.atS = this.shownUntilS = atS;
    this.label = label;
    this.#nHidden = hidden.length;
    this.#words = words;
    this.#final = this.#shown = hidden;
    this.#joint = hidden === "" ? { ours: "", nTheirs: 0 } : undefined;
  }

  /** The end of the segments that were delivered. */
  get endS(): number {
    return this.#segments.length === 0 ? this.atS : Math.max(...this.#segments.map(({ segment }) => segment.end_s));
  }

  /** The utterance began in this connection, so that its text is as the connection sends it. */
  get isWhole(): boolean {
    return this.#joint?.ours === "" && this.#joint.nTheirs === 0;
  }

  /** Some text of it was shown. */
  get hasText(): boolean {
    return this.#shown.length > this.#nHidden;
  }

  /** The text that was delivered in segments. */
  get text(): string {
    return this.#nHidden > 0 ? this.#final.slice(this.#nHidden).trimStart() : this.#final;
  }

  /** What was shown and is not in the text of the connection. */
  get unrepeated(): string {
    return this.#joint === undefined ? this.#repeatable.slice(align(this.#repeatable, this.#theirFinal)[0]) : "";
  }

  get #repeatable(): string {
    return this.#shown.slice(this.#kept.length);
  }

  /** The connection is lost. Another one sends the text of the audio from `fromS` on. */
  waitForCounterpart(fromS: number): void {
    this.isWaiting = true;
    const kept = this.#segments.filter(({ segment }) => segment.start_s < fromS).map(({ final }) => final);
    this.#kept = kept.reduce((longest, final) => (final.length > longest.length ? final : longest), "");
    this.#theirFinal = "";
    this.#joint = undefined;
  }

  /** The text of the utterance if the connection sent `theirs` as its text. */
  textWith(theirs: string): string {
    if (this.isWhole) {
      return theirs;
    }
    const { ours, nTheirs } = this.#joint ?? {
      ours: this.#shown + this.#separator(theirs),
      nTheirs: align(this.#repeatable, theirs)[1],
    };
    const text = theirs.length > nTheirs ? ours + theirs.slice(nTheirs) : this.#shown;
    return this.#nHidden > 0 ? text.slice(this.#nHidden).trimStart() : text;
  }

  /** The segment to deliver, if there is one. */
  addSegment(event: SegmentEvent): SegmentEvent | undefined {
    this.#theirFinal += event.text;
    const nBefore = this.#final.length;
    this.#final = this.#ours(this.#theirFinal);
    if (!this.#shown.startsWith(this.#final)) {
      this.#shown = this.#final;
    }
    let text = this.#final.slice(nBefore);
    if (text === "" && event.text !== "") {
      return undefined;
    }
    if (this.#isHiddenBefore(nBefore)) {
      text = text.trimStart();
    }
    const isTheirs = text === event.text;
    const startS = isTheirs ? event.start_s : Math.min(Math.max(event.start_s, this.endS), event.end_s);
    const words = this.#words?.finish(text, event, startS) ?? event.words;
    return this.#keep({ ...event, utterance: this.number, start_s: startS, text, words });
  }

  /** The interim to deliver, if it shows anything that is not shown already. */
  addInterim(event: InterimEvent): InterimEvent | undefined {
    const stable = this.#theirFinal + event.stable;
    const ours = this.#ours(stable);
    if (this.#joint !== undefined) {
      this.#shown = this.isWhole || ours.length >= this.#shown.length ? ours : this.#shown;
      this.shownUntilS = event.end_s;
      return this.#interim(event, event.tail);
    }
    const theirs = stable + event.tail;
    const [nOurs, nTheirs] = align(this.#repeatable, theirs);
    if (nOurs < this.#repeatable.length || nTheirs === theirs.length) {
      return undefined;
    }
    this.shownUntilS = event.end_s;
    return this.#interim(event, this.#separator(theirs) + theirs.slice(nTheirs));
  }

  /** What was shown as stable and is in no segment, as a last segment. */
  popRest(): SegmentEvent | undefined {
    let text = this.#shown.slice(this.#final.length);
    if (text === "" || this.isWhole) {
      return undefined;
    }
    if (this.#isHiddenBefore(this.#final.length)) {
      text = text.trimStart();
    }
    const startS = this.endS;
    const last = this.#segments.at(-1)?.segment;
    this.#final = this.#shown;
    return this.#keep({
      type: "segment",
      utterance: this.number,
      id: 0,
      channel: this.channel,
      start_s: startS,
      end_s: Math.max(this.shownUntilS, startS),
      text,
      words: [],
      confidence: last?.confidence ?? 0,
      language: last?.language ?? null,
      ...this.label,
    });
  }

  #interim(event: InterimEvent, tail: string): InterimEvent {
    const stable = this.#shown.slice(this.#final.length);
    const { stable_words = [], ...rest } = event;
    const words = this.#words?.show(stable, stable_words, this.isWhole);
    const shown = { ...rest, utterance: this.number, stable, tail, ...words };
    if (!this.#isHiddenBefore(this.#final.length)) {
      return shown;
    }
    return { ...shown, stable: stable.trimStart(), tail: stable.trim() === "" ? tail.trimStart() : tail };
  }

  /** The first text that is delivered follows hidden text. It begins the utterance, so it has no leading space. */
  #isHiddenBefore(nChars: number): boolean {
    return nChars > 0 && nChars === this.#nHidden;
  }

  #keep(segment: SegmentEvent): SegmentEvent {
    this.#segments.push({ segment, final: this.#final });
    return segment;
  }

  /** Our text that corresponds to the beginning of their text. It begins with what is final. */
  #ours(theirs: string): string {
    const nKept = this.#kept.length;
    if (this.#joint === undefined) {
      const [nOurs, nTheirs] = align(this.#repeatable, theirs);
      if (nKept + nOurs < this.#shown.length || nTheirs === theirs.length) {
        return this.#shown.slice(0, Math.max(nKept + nOurs, this.#final.length));
      }
      this.#joint = { ours: this.#shown + this.#separator(theirs), nTheirs };
    }
    const { ours, nTheirs } = this.#joint;
    if (theirs.length >= nTheirs) {
      return ours + theirs.slice(nTheirs);
    }
    return ours.slice(0, Math.max(nKept + align(ours.slice(nKept), theirs)[0], this.#final.length));
  }

  /** What their text lacks at its beginning where it goes on after text that it does not repeat. */
  #separator(theirs: string): string {
    return this.#kept !== "" && this.#shown === this.#kept && !followsWords(theirs) ? " " : "";
  }
}
