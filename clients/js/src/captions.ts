/**
 * What to show: folds the events of one session into final lines and, below them, the text that is still being heard.
 *
 * Texts are joined as they are. While an utterance is open its text is `segments + stable + tail`: the first two never
 * change, together they only grow; `tail` may still change.
 */

import type { ServerEvent } from "./events.js";

/** An utterance that has ended. */
export interface Line {
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  readonly end_s: number;
  readonly text: string;
  /** Stretches of detected speech, `[start_s, end_s]`, for which there is no text. */
  readonly uncovered: readonly (readonly [number, number])[];
}

/** An utterance that is still open. */
export interface OpenLine {
  readonly utterance: number;
  readonly channel: number;
  readonly start_s: number;
  /** Text that is final: the segments sent so far. */
  readonly segments: string;
  /** Follows `segments`; it will only grow. */
  readonly stable: string;
  /** Follows `stable`; it may still change. */
  readonly tail: string;
}

export interface ChannelCaptions {
  /** In the order in which they ended. */
  readonly lines: readonly Line[];
  /** In the order in which they began. There may be two: speech goes on while the last words become final. */
  readonly open: readonly OpenLine[];
}

interface Channel {
  lines: Line[];
  open: OpenLine[];
}

export class Captions {
  readonly #channels = new Map<number, Channel>();

  /** The channels that have been heard so far. */
  get channels(): ReadonlyMap<number, ChannelCaptions> {
    return this.#channels;
  }

  /** Takes one event in and returns the line it touched, if any; a line with `end_s` has ended. */
  apply(event: ServerEvent): Line | OpenLine | undefined {
    switch (event.type) {
      case "speech_started":
        return this.#change(event.channel, event.utterance, event.at_s, {});
      case "interim":
        return this.#change(event.channel, event.utterance, event.start_s, { stable: event.stable, tail: event.tail });
      case "segment": {
        const before = this.#find(event.channel, event.utterance);
        return this.#change(event.channel, event.utterance, event.start_s, {
          segments: (before?.segments ?? "") + event.text,
          ...after(event.text, before?.stable ?? "", before?.tail ?? ""),
        });
      }
      case "utterance": {
        const { utterance, channel, start_s, end_s, text, uncovered } = event;
        const line: Line = { utterance, channel, start_s, end_s, text, uncovered };
        const captions = this.#channel(channel);
        captions.open = captions.open.filter((open) => open.utterance !== utterance);
        captions.lines.push(line);
        return line;
      }
      default:
        return undefined;
    }
  }

  #channel(channel: number): Channel {
    let captions = this.#channels.get(channel);
    if (captions === undefined) {
      captions = { lines: [], open: [] };
      this.#channels.set(channel, captions);
    }
    return captions;
  }

  #find(channel: number, utterance: number): OpenLine | undefined {
    return this.#channels.get(channel)?.open.find((open) => open.utterance === utterance);
  }

  #change(
    channel: number,
    utterance: number,
    start_s: number,
    changes: Partial<Pick<OpenLine, "segments" | "stable" | "tail">>,
  ): OpenLine {
    const captions = this.#channel(channel);
    const before = this.#find(channel, utterance);
    const changed: OpenLine = {
      ...(before ?? { utterance, channel, start_s, segments: "", stable: "", tail: "" }),
      ...changes,
    };
    captions.open =
      before === undefined
        ? [...captions.open, changed]
        : captions.open.map((open) => (open === before ? changed : open));
    return changed;
  }
}

/**
 * What is left of an interim when a segment has made its beginning final. Stable text stays until it is final. A tail that
 * turned out differently gives way by as many words as the segment has: what follows them must not vanish and come back.
 */
function after(segment: string, stable: string, tail: string): { stable: string; tail: string } {
  if (stable.startsWith(segment)) {
    return { stable: stable.slice(segment.length), tail };
  }
  const shown = stable + tail;
  return { stable: "", tail: shown.startsWith(segment) ? shown.slice(segment.length) : behindWords(shown, words(segment)) };
}

function words(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}

function behindWords(text: string, n: number): string {
  return text.replace(new RegExp(`^(?:\\s*\\S+){0,${n}}`), "");
}
