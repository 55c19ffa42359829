/**
 * Which translations a session still owes its application, over all of its connections. A connection may be lost after a
 * text was final and before its translations came. The next one is asked for them: with the text, and with its audio. This
 * module does no I/O.
 */

import type { SegmentEvent, TranslationEvent, Untranslated } from "./events.js";

/** By how many seconds two times may differ that mean the same moment. */
const ROUNDING_S = 0.002;
/** The most segments, and utterances, that are remembered; older ones are not asked for again. */
const MAX_REMEMBERED = 500;
/** The longest piece of text that is asked for again, in seconds: the server takes 30 s. */
const MAX_SPAN_S = 28;
/** The most pieces that are asked for (docs/protocol.md); the newest ones. */
const MAX_PIECES = 64;
/** The most characters of all pieces. */
const MAX_CHARS = 10_000;
/** Codes of languages that write no spaces between words, as the server knows them. */
const WITHOUT_SPACES: readonly string[] = ["zh", "ja", "th", "lo", "my", "yue"];

/** The final text whose translations have not all come, and the translations that were delivered. */
export class PendingTranslations {
  readonly #targets: readonly string[];
  /** The segments that were delivered, but for those whose translations were sent, or do not come. */
  #texts: SegmentEvent[] = [];
  /** The numbers of utterances as delivered, by those that they have in this connection. */
  readonly #numbers = new Map<number, number>();
  /** How far each utterance was translated to each language, in seconds. */
  readonly #untilS = new Map<string, number>();

  /** @param targets the codes of the languages that the server was asked for. */
  constructor(targets: readonly string[]) {
    this.#targets = targets;
  }

  /** From when on audio must be kept, so that another connection can translate it; undefined for none. */
  get neededFromS(): number | undefined {
    return this.#texts.length === 0 ? undefined : Math.min(...this.#texts.map(({ start_s }) => start_s));
  }

  /** A new connection counts its utterances anew. */
  restart(): void {
    this.#numbers.clear();
  }

  /** Notes which utterance has a number in this connection. */
  noteNumber(theirs: number, ours: number): void {
    remember(this.#numbers, theirs, ours);
  }

  /** Notes final text that was delivered. */
  add(segment: SegmentEvent): void {
    this.#texts = [...this.#texts, segment].slice(-MAX_REMEMBERED);
  }

  /** Before these times, one for each channel, no more translations come. */
  forgetBefore(timesS: readonly number[] = []): void {
    this.#texts = this.#texts.filter((each) => each.end_s > (timesS[each.channel] ?? -Infinity) + ROUNDING_S);
  }

  /** The translation to deliver; undefined if what it translates was delivered already. */
  receive(event: TranslationEvent): TranslationEvent | undefined {
    const { earlier, ...rest } = event;
    const utterance = earlier === true ? event.utterance : (this.#numbers.get(event.utterance) ?? event.utterance);
    const key = keyOf(utterance, event.language);
    const isNew = (event.start_s + event.end_s) / 2 >= (this.#untilS.get(key) ?? 0) - ROUNDING_S;
    // A connection does not know what an earlier one has sent of the utterance.
    const lacksSpace = this.#untilS.has(key) && !WITHOUT_SPACES.includes(event.language) && !/^\s/u.test(event.text);
    const text = lacksSpace ? ` ${event.text}` : event.text;
    if (isNew) {
      remember(this.#untilS, key, event.end_s);
    }
    this.forgetBefore(event.translated_until_s);
    return isNew ? { ...rest, utterance, text } : undefined;
  }

  /** What another connection must translate that sends the text after these times, one for each channel. */
  missing(fromS: readonly number[]): Untranslated[] {
    const pieces: Untranslated[] = [];
    for (const segment of [...this.#texts].sort((one, other) => one.channel - other.channel)) {
      const { utterance, channel, start_s, text, language } = segment;
      const end_s = Math.min(segment.end_s, fromS[Math.min(channel, fromS.length - 1)] ?? 0);
      const targets = this.#targets.filter((target) => this.#isMissing(segment, target));
      if (targets.length === 0 || start_s >= end_s) {
        continue;
      }
      const last = pieces[pieces.length - 1];
      if (last !== undefined && goesOn(last, segment, targets) && end_s - last.start_s <= MAX_SPAN_S) {
        pieces[pieces.length - 1] = { ...last, end_s, text: last.text + text };
      } else {
        pieces.push({ utterance, channel, start_s, end_s, text, language, targets });
      }
    }
    const newest = pieces.sort((one, other) => one.start_s - other.start_s).slice(-MAX_PIECES);
    while (newest.reduce((sum, { text }) => sum + text.length, 0) > MAX_CHARS) {
      newest.shift();
    }
    return newest;
  }

  #isMissing(segment: SegmentEvent, target: string): boolean {
    const untilS = this.#untilS.get(keyOf(segment.utterance, target)) ?? 0;
    return target !== segment.language && segment.end_s > untilS + ROUNDING_S;
  }
}

/** Whether the text of a segment follows that of a piece, and lacks the same translations. */
function goesOn(piece: Untranslated, segment: SegmentEvent, targets: readonly string[]): boolean {
  const isSame = piece.utterance === segment.utterance && piece.channel === segment.channel;
  return isSame && piece.language === segment.language && piece.targets.join() === targets.join();
}

function keyOf(utterance: number, language: string): string {
  return `${utterance} ${language}`;
}

/** Sets a value, and forgets the oldest one where there are too many. */
function remember<Key, Value>(map: Map<Key, Value>, key: Key, value: Value): void {
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > MAX_REMEMBERED && oldest !== undefined) {
    map.delete(oldest);
  }
}
