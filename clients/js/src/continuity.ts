/**
 * Makes one stream of events out of the connections of a session: what was shown stays, what comes again is left out.
 * This module does no I/O. `tests/wire/resume.json` holds its golden cases, which the Python client passes too.
 *
 * A connection that resumes a session transcribes again what was not final when the one before it was lost. Its events
 * have numbers of their own, and repeat text that the application has received already.
 *
 * 1. **Numbers.** Every utterance that was open at the loss waits for its counterpart. When the new connection announces
 *    an utterance, those waiting ones of its channel are considered that began before it, or less than `SAME_START_S`
 *    after it. The one whose beginning is nearest keeps its number, and is not announced again; those before it end. If
 *    there is none, the utterance gets the next number. Segments are numbered in the order in which they are delivered.
 * 2. **Text.** Of an open utterance, `shown` is what must stay: the texts of its segments, and the stable text after
 *    them. The text of the counterpart begins where the audio was resumed, mostly at the beginning of the utterance:
 *    after the segments that began before. As long as `shown` covers this text, segments are delivered with the words of
 *    `shown`, and interims not at all. Once the text goes beyond `shown`, the two are joined: from then on, the text of
 *    the utterance is `shown`, and after it what the counterpart has behind the place that corresponds to its end.
 *    `align` finds that place.
 * 3. **Ends.** An utterance whose counterpart ended before its text had reached the end of `shown` gets the rest of
 *    `shown` as a last segment; the next utterance of the channel does not repeat it. An utterance without a counterpart
 *    ends with what was shown as soon as the new connection is past its beginning, or when its audio is lost.
 * 4. **Turns.** An "eager_end" promises that its text is that of the utterance, unless "resumed" follows. So a loss of
 *    the connection after it is followed by "resumed", and its text is what the utterance would be with that text.
 */

import { wordsOf } from "./align.js";
import type { EagerEnds } from "./eager_ends.js";
import { OpenUtterance } from "./open_utterance.js";
import type {
  InterimEvent,
  SegmentEvent,
  ServerEvent,
  SpeechStartedEvent,
  StoppedEvent,
  TurnEvent,
  UtteranceEvent,
} from "./events.js";
import type { PendingTranslations } from "./translations.js";
import type { UtteranceWords } from "./utterance_words.js";

/** Two utterances of a channel whose beginnings differ by less than this, in seconds, may be the same one. */
const SAME_START_S = 1;

/** What a session needs for options that few applications ask for. */
export interface Parts {
  readonly translations?: PendingTranslations;
  readonly eagerEnds?: EagerEnds;
  readonly makeWords?: () => UtteranceWords;
}

/** The events of a session over all of its connections. */
export class Continuity {
  #resumeFromS: readonly number[];
  #languages = new Map<number, string>();
  #detectorFromS: readonly (number | null)[];
  #isResumed = false;
  readonly #beganS: number;
  #audioFromS: number;
  /** The utterances that were announced and have not ended, in the order of their numbers. */
  #open: OpenUtterance[] = [];
  /** The open utterances by the numbers that they have in this connection. */
  #counterparts = new Map<number, OpenUtterance>();
  /** For each channel, text that was delivered although the connection has not sent it yet. */
  #unrepeated = new Map<number, string>();
  #nextNumber = 0;
  #nextSegmentId = 0;
  /** The words of all segments that were delivered. */
  #nWords = 0;
  /** The length of all utterances that have ended, in seconds. */
  #speechS = 0;

  /** What another connection needs to know the same speakers. */
  voices: string | undefined;
  /** Which translations are still to come, if any were asked for. */
  readonly translations: PendingTranslations | undefined;
  readonly #eagerEnds: EagerEnds | undefined;
  readonly #makeWords: (() => UtteranceWords) | undefined;
  readonly #labels: readonly { readonly speaker: string }[] | undefined;

  /**
   * @param fromS where the session begins: one time for each channel, or one for all.
   * @param audioFromS the time of the first sample.
   * @param parts what the session needs for options that few applications ask for.
   * @param channelNames the name of each channel, if they have any.
   */
  constructor(
    fromS: readonly number[],
    audioFromS: number,
    { translations, eagerEnds, makeWords }: Parts,
    channelNames?: readonly string[],
  ) {
    this.translations = translations;
    this.#eagerEnds = eagerEnds;
    this.#makeWords = makeWords;
    this.#labels = channelNames?.map((speaker) => ({ speaker }));
    this.#resumeFromS = fromS;
    this.#detectorFromS = fromS.map(() => null);
    this.#beganS = this.#audioFromS = audioFromS;
  }

  /** For each channel, the time from which on its text is not final yet. */
  get resumeFromS(): readonly number[] {
    return this.#resumeFromS;
  }

  /** For each channel, the language of its last utterance, if the server detected it. */
  get languages(): readonly (string | null)[] {
    return this.#resumeFromS.map((_, channel) => this.#languages.get(channel) ?? null);
  }

  /** For each channel, from when on a detector must process the audio to find the same speech after that time. */
  get detectorFromS(): readonly (number | null)[] {
    return this.#detectorFromS;
  }

  /** Audio before this time is final on all channels. */
  get finalUntilS(): number {
    return Math.min(...this.#resumeFromS);
  }

  /**
   * A new connection has begun; `receive` gets its events from now on. Returns what takes back the eager ends, and the
   * ends of utterances whose audio is lost.
   *
   * @param audioFromS the time of the first sample that is sent.
   * @param lostUntilS if audio that was not final is lost, the time of its end.
   */
  resume(audioFromS: number, lostUntilS?: number): ServerEvent[] {
    this.#isResumed = true;
    this.#audioFromS = audioFromS;
    this.#counterparts.clear();
    this.#unrepeated.clear();
    this.translations?.restart();
    const takenBack = this.#open.flatMap((utterance) => this.#eagerEnds?.takeBack(utterance) ?? []);
    for (const utterance of this.#open) {
      utterance.waitForCounterpart(timeOf(this.#resumeFromS, utterance.channel));
    }
    if (lostUntilS === undefined) {
      return takenBack;
    }
    const times = this.#resumeFromS;
    this.#detectorFromS = this.#detectorFromS.map((knownS, channel) =>
      timeOf(times, channel) >= lostUntilS ? knownS : null,
    );
    this.#resumeFromS = times.map((timeS) => Math.max(timeS, lostUntilS));
    const lost = this.#open.filter((utterance) => utterance.atS < lostUntilS);
    return [...takenBack, ...lost.flatMap((utterance) => this.#close(utterance, lostUntilS, true))];
  }

  /** The events to deliver for an event of the present connection. */
  receive(event: ServerEvent): ServerEvent[] {
    switch (event.type) {
      case "speech_started":
        return this.#begin(event);
      case "interim": {
        const interim = this.#find(event, event.start_s).addInterim(event);
        return interim === undefined ? [] : [interim];
      }
      case "segment":
        return this.#deliver(this.#find(event, event.start_s).addSegment(event));
      case "translation": {
        const translation = this.translations?.receive(event);
        return translation === undefined ? [] : [translation];
      }
      case "turn":
        return [this.#turn(event)];
      case "utterance":
        return this.#end(event);
      case "stopped":
        return this.#stop(event);
      default:
        return [event];
    }
  }

  #begin(event: SpeechStartedEvent): ServerEvent[] {
    const earlier = this.#waiting(event).filter(({ atS }) => atS <= event.at_s + SAME_START_S);
    const [first] = earlier;
    if (first === undefined) {
      return [{ ...event, utterance: this.#announce(event, event.at_s).number }];
    }
    const distance = ({ atS }: OpenUtterance) => Math.abs(atS - event.at_s);
    const counterpart = earlier.reduce((best, each) => (distance(each) < distance(best) ? each : best), first);
    this.#counterparts.set(event.utterance, counterpart);
    this.translations?.noteNumber(event.utterance, counterpart.number);
    counterpart.isWaiting = false;
    const skipped = earlier.slice(0, earlier.indexOf(counterpart));
    return skipped.flatMap((utterance) => this.#close(utterance, event.at_s));
  }

  /** The open utterances of a channel that wait for their counterparts. */
  #waiting({ channel }: { channel: number }): OpenUtterance[] {
    return this.#open.filter((each) => each.isWaiting && each.channel === channel);
  }

  #announce({ utterance, channel }: { utterance: number; channel: number }, atS: number): OpenUtterance {
    const hidden = this.#unrepeated.get(channel) ?? "";
    const label = this.#labels?.[channel];
    const announced = new OpenUtterance(this.#nextNumber++, channel, atS, hidden, label, this.#makeWords?.());
    this.#unrepeated.delete(channel);
    this.#open.push(announced);
    this.#counterparts.set(utterance, announced);
    this.translations?.noteNumber(utterance, announced.number);
    return announced;
  }

  #find(event: InterimEvent | SegmentEvent | TurnEvent | UtteranceEvent, startS: number): OpenUtterance {
    return this.#counterparts.get(event.utterance) ?? this.#announce(event, startS);
  }

  #deliver(segment: SegmentEvent | undefined): ServerEvent[] {
    if (segment === undefined) {
      return [];
    }
    this.#nWords += wordsOf(segment.text).length;
    this.translations?.add(segment);
    return [{ ...segment, id: this.#nextSegmentId++ }];
  }

  #turn(event: TurnEvent): TurnEvent {
    const utterance = this.#find(event, event.at_s);
    const text = event.text === null ? null : utterance.textWith(event.text);
    const turn = { ...event, utterance: utterance.number, text };
    this.#eagerEnds?.note(turn);
    return turn;
  }

  #end(event: UtteranceEvent): ServerEvent[] {
    const utterance = this.#find(event, event.start_s);
    this.#counterparts.delete(event.utterance);
    if (event.language !== undefined) {
      this.#languages.set(event.channel, event.language);
    }
    const times = event.resume_from_s;
    const before = times.length === this.#resumeFromS.length ? this.#resumeFromS : [];
    const known = times.length === event.detector_from_s.length ? event.detector_from_s : [];
    const resumeFromS = times.map((timeS, index) => Math.max(timeS, before[index] ?? timeS));
    const detectorFromS = times.map(
      (timeS, index) => (timeS === resumeFromS[index] ? known : this.#detectorFromS)[index] ?? null,
    );
    const untilS = timeOf(resumeFromS, event.channel);
    const passed = this.#waiting(event).filter(({ atS }) => atS + SAME_START_S < untilS);
    const closed = passed.flatMap((each) => this.#close(each, untilS));
    this.#resumeFromS = resumeFromS;
    this.#detectorFromS = detectorFromS;
    this.voices = event.voices ?? this.voices;
    this.translations?.forgetBefore(event.translated_until_s);
    const rest = utterance.unrepeated;
    if (rest !== "") {
      this.#unrepeated.set(event.channel, rest);
    }
    return [...closed, ...this.#finish(utterance, event)];
  }

  /** Ends an utterance of which no more text comes. Without its audio, or without text, it is not covered. */
  #close(utterance: OpenUtterance, untilS: number, isLost = false): ServerEvent[] {
    const endS = Math.max(utterance.endS, utterance.shownUntilS);
    const isUncovered = untilS > endS && (isLost || !utterance.hasText);
    return this.#finish(utterance, {
      type: "utterance",
      utterance: utterance.number,
      channel: utterance.channel,
      start_s: utterance.atS,
      end_s: endS,
      text: "",
      uncovered: isUncovered ? [[endS, untilS]] : [],
      final_until_s: this.finalUntilS,
      resume_from_s: this.#resumeFromS,
      detector_from_s: this.#detectorFromS,
      ...utterance.label,
    });
  }

  #finish(utterance: OpenUtterance, event: UtteranceEvent): ServerEvent[] {
    this.#open = this.#open.filter((each) => each !== utterance);
    const rest = this.#deliver(utterance.popRest());
    // A connection that goes on with it in the middle says where it has gone on.
    const startS = Math.min(event.start_s, utterance.atS);
    this.#speechS += event.end_s - startS;
    if (!this.#isResumed) {
      this.#eagerEnds?.takeBack(utterance);
      return [...rest, event];
    }
    const ended = {
      ...event,
      utterance: utterance.number,
      start_s: startS,
      end_s: Math.max(event.end_s, utterance.endS),
      text: utterance.isWhole ? event.text : utterance.text,
      final_until_s: this.finalUntilS,
      resume_from_s: this.#resumeFromS,
      detector_from_s: this.#detectorFromS,
    };
    return [...rest, ...(this.#eagerEnds?.takeBack(utterance, ended.text) ?? []), ended];
  }

  #stop(event: StoppedEvent): ServerEvent[] {
    if (!this.#isResumed) {
      return [event];
    }
    const endS = this.#audioFromS + event.audio_s;
    const closed = this.#open.flatMap((utterance) => this.#close(utterance, endS));
    const totals = { audio_s: rounded(endS - this.#beganS), speech_s: rounded(this.#speechS), words: this.#nWords };
    return [...closed, { ...event, ...totals }];
  }
}

/** The time of a channel, in a list with one for each channel or one for all. */
function timeOf(timesS: readonly number[], channel: number): number {
  return timesS[Math.min(channel, timesS.length - 1)] ?? 0;
}

/** A time with whole milliseconds. */
function rounded(timeS: number): number {
  return Math.round(timeS * 1000) / 1000;
}
