/**
 * Collects the events of one session into text to show: final lines and, below them, the utterances that are open.
 *
 * Texts are joined without a separator. The text of an open utterance is `segments + stable + tail`. The first two only
 * grow together and never change; `tail` may still change.
 */

import { align } from "./align.js";
import type { SessionEvent } from "./events.js";

/** An utterance that has ended. */
export interface Line {
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  readonly text: string;
  /** Parts of the audio, `[start_s, end_s]`, where speech was detected but there is no text. */
  readonly uncovered: readonly (readonly [number, number])[];
}

/** An utterance that is still open. */
export interface OpenLine {
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  /** Final text: the texts of the segments so far. */
  readonly segments: string;
  /** The text after `segments`. It will become final as it is. */
  readonly stable: string;
  /** The text after `stable`. It may still change. */
  readonly tail: string;
}

/** The lines of one channel. Each change makes a new list, as interfaces that compare lists need it. */
export interface ChannelCaptions {
  /** In the order in which they ended. */
  readonly lines: readonly Line[];
  /** In the order in which they began. There may be two: the next utterance may begin before the last one is final. */
  readonly open: readonly OpenLine[];
}

/** Which utterance an event is about. */
interface Place {
  readonly utterance: number;
  readonly channel: number;
}

interface Channel {
  lines: Line[];
  open: OpenLine[];
}

/** The text of a session. Call `apply` with each event. */
export class Captions {
  readonly #channels = new Map<number, Channel>();
  /** The channels that have had an utterance so far. */
  readonly channels: ReadonlyMap<number, ChannelCaptions> = this.#channels;

  /** Applies an event. Returns the line that it changed, if any; a line with `end_s` has ended. */
  apply(event: SessionEvent): Line | OpenLine | undefined {
    switch (event.type) {
      case "speech_started":
        return this.#change(event, event.at_s, () => ({}));
      case "interim":
        return this.#change(event, event.start_s, () => ({ stable: event.stable, tail: event.tail }));
      case "segment":
        return this.#change(event, event.start_s, ({ segments, stable, tail }) => ({
          segments: segments + event.text,
          ...withoutSegment(event.text, stable, tail),
        }));
      case "utterance": {
        const { utterance, channel, start_s, end_s, text, uncovered } = event;
        const line: Line = { utterance, channel, start_s, end_s, text, uncovered };
        const captions = this.#channel(channel);
        captions.open = captions.open.filter((open) => open.utterance !== utterance);
        captions.lines = [...captions.lines, line];
        return line;
      }
      default:
        return undefined;
    }
  }

  #channel(channel: number): Channel {
    const captions = this.#channels.get(channel) ?? { lines: [], open: [] };
    this.#channels.set(channel, captions);
    return captions;
  }

  #change(
    { utterance, channel }: Place,
    start_s: number,
    changes: (before: OpenLine) => Partial<Pick<OpenLine, "segments" | "stable" | "tail">>,
  ): OpenLine {
    const captions = this.#channel(channel);
    const before = captions.open.find((open) => open.utterance === utterance);
    const line = before ?? { utterance, channel, start_s, segments: "", stable: "", tail: "" };
    const changed = { ...line, ...changes(line) };
    captions.open = before ? captions.open.map((open) => (open === before ? changed : open)) : [...captions.open, changed];
    return changed;
  }
}

/**
 * The rest of an interim after a segment has made its beginning final. If the tail was different from the segment, the
 * words go that correspond to it. The words after them would otherwise disappear and come back.
 */
export function withoutSegment(segment: string, stable: string, tail: string): { stable: string; tail: string } {
  const [, nChars] = align(segment, stable + tail);
  return { stable: stable.slice(nChars), tail: tail.slice(Math.max(nChars - stable.length, 0)) };
}
