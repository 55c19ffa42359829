/** Brings the events of one session, or of one file, into the transcript. Open lines are shown and kept, too. */

import { clock } from "../tutti/clock.js";
import { Captions, SpeakerTimeline } from "../tutti/index.js";
import { keepOpen } from "./keeper.js";
import { drawOpen, removeOpen } from "./lines.js";
import { add, addTranslation, setSpeaker } from "./transcript.js";

export class SessionText {
  /** Added to all times, in seconds. */
  #offsetS;
  #captions = new Captions();
  #speakers = new SpeakerTimeline();
  /**
   * What is known of each utterance beside its text: its segments, translations, language and end so far; when it is
   * final, its entry.
   */
  #utterances = new Map();

  constructor(offsetS = 0) {
    this.#offsetS = offsetS;
  }

  /** Shows what an event changes, if anything. */
  apply(event) {
    if (event.type === "translation") {
      this.#translate(event);
      return;
    }
    if (event.type === "speakers") {
      const [fromS, untilS] = this.#speakers.apply(event).map((each) => each + this.#offsetS);
      for (const { entry } of this.#utterances.values()) {
        if (entry !== undefined && entry.start_s < untilS && entry.end_s > fromS) {
          setSpeaker(entry, this.#speakerOf(entry) ?? entry.speaker);
        }
      }
      return;
    }
    if (event.type === "segment") {
      const about = this.#utterance(event.utterance);
      about.segments.push(this.#piece(event));
      about.language ??= event.language;
      about.speaker ??= event.speaker ?? null;
    } else if (event.type === "interim") {
      this.#utterance(event.utterance).endS = event.end_s + this.#offsetS;
    }
    const line = this.#captions.apply(event);
    if (line === undefined) {
      return;
    }
    if ("end_s" in line) {
      this.#finish(line, this.#utterance(line.utterance).segments.length === 0 ? line.text : "", false);
    } else {
      drawOpen(this.#shifted(line), this.#utterance(line.utterance).translations);
    }
    this.#keepOpen();
  }

  /** Adds a line in the place of audio that is lost because the connection was away for too long. */
  addGap([fromS, untilS]) {
    add({ kind: "gap", start_s: fromS, end_s: untilS, text: `(The audio until ${clock(untilS)} is lost.)` });
  }

  /** The session has ended: keeps the stable text of open lines, and removes text that might still have changed. */
  end() {
    for (const line of this.#open()) {
      this.#finish(line, line.stable, true);
    }
    this.#captions = new Captions();
    keepOpen([]);
  }

  /** `rest`: the text after the segments. */
  #finish(line, rest, isCut) {
    const about = this.#utterance(line.utterance);
    const entry = this.#entryOf(line, rest, isCut);
    entry.speaker = this.#speakerOf(entry) ?? about.speaker;
    if (entry.text.trim() !== "") {
      about.entry = add(entry);
    }
    removeOpen(line.utterance);
  }

  #entryOf(line, rest, isCut) {
    const { utterance } = line;
    const { segments, translations, language, endS } = this.#utterance(utterance);
    const startS = line.start_s + this.#offsetS;
    const restS = segments.at(-1)?.end_s ?? startS;
    const end_s = Math.max(restS, endS, (line.end_s ?? 0) + this.#offsetS);
    return {
      utterance,
      start_s: startS,
      end_s,
      text: line.text ?? line.segments + rest,
      segments: rest.trim() === "" ? segments : [...segments, { start_s: restS, end_s, text: rest }],
      language,
      is_cut: isCut,
      translations,
    };
  }

  #translate(event) {
    const about = this.#utterance(event.utterance);
    const piece = this.#piece(event);
    if (about.entry !== undefined) {
      addTranslation(about.entry, event.language, piece);
      return;
    }
    (about.translations[event.language] ??= []).push(piece);
    const open = this.#open().find(({ utterance }) => utterance === event.utterance);
    if (open !== undefined) {
      drawOpen(this.#shifted(open), about.translations);
    }
  }

  #keepOpen() {
    const lines = this.#open().filter(({ segments, stable, tail }) => segments + stable + tail !== "");
    const at = new Date().toISOString();
    keepOpen(lines.map((line) => ({ at, ...this.#entryOf(line, line.stable + line.tail, true) })));
  }

  #open() {
    return [...this.#captions.channels.values()].flatMap(({ open }) => open);
  }

  #utterance(number) {
    let about = this.#utterances.get(number);
    if (about === undefined) {
      about = { segments: [], translations: {}, language: null, speaker: null, endS: 0, entry: undefined };
      this.#utterances.set(number, about);
    }
    return about;
  }

  #piece({ start_s, end_s, text }) {
    return { start_s: start_s + this.#offsetS, end_s: end_s + this.#offsetS, text };
  }

  #speakerOf({ start_s, end_s }) {
    return this.#speakers.speakerOf(start_s - this.#offsetS, end_s - this.#offsetS);
  }

  #shifted(line) {
    return { ...line, start_s: line.start_s + this.#offsetS };
  }
}
