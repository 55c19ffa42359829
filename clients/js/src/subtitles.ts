/**
 * Final segments as subtitles: each segment with text becomes one cue. The server's own subtitles cut long segments too:
 * to get them, upload a file with `response_format` `srt` or `vtt`.
 *
 * Source of the syntax: W3C, "WebVTT: The Web Video Text Tracks Format".
 */

import type { SegmentEvent } from "./events.js";

/** What a cue needs of a segment. Who speaks it, if that is known, stands before the text, in WebVTT as a voice. */
export interface Subtitle extends Pick<SegmentEvent, "start_s" | "end_s" | "text"> {
  readonly speaker?: string | null | undefined;
}

/** The segments as SubRip. */
export function toSrt(segments: Iterable<Subtitle>): string {
  // SubRip has no way to escape an arrow.
  return cues(segments, ",", (speaker) => `${speaker}: `)
    .map(([times, voice, text], index) => `${index + 1}\n${times}\n${(voice + text).replace(/-{2,}>/g, "->")}\n\n`)
    .join("");
}

/** The segments as WebVTT. */
export function toVtt(segments: Iterable<Subtitle>): string {
  const made = cues(segments, ".", (speaker) => `<v ${escaped(speaker)}>`);
  return ["WEBVTT\n\n", ...made.map(([times, voice, text]) => `${times}\n${voice}${escaped(text)}\n\n`)].join("");
}

/** The line with the times, the voice and the text of each cue, in the order of time. None is empty or of no length. */
function cues(
  segments: Iterable<Subtitle>,
  point: string,
  voiceOf: (speaker: string) => string,
): [times: string, voice: string, text: string][] {
  return [...segments]
    .sort((a, b) => a.start_s - b.start_s)
    .map(({ start_s, end_s, text, speaker }): [string, string, string] => [
      times(start_s, end_s, point),
      speaker ? voiceOf(oneLine(speaker)) : "",
      oneLine(text),
    ])
    .filter(([, , text]) => text !== "");
}

/** The line with the times of a cue. None is of no length. */
export function times(startS: number, endS: number, point: string): string {
  const startMs = Math.round(startS * 1000);
  const endMs = Math.max(Math.round(endS * 1000), startMs + 1);
  return `${clock(startMs, point)} --> ${clock(endMs, point)}`;
}

export function oneLine(text: string): string {
  return text.trim().replace(/\s+/g, " ");
}

function clock(timeMs: number, point: string): string {
  const seconds = Math.floor(timeMs / 1000);
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return parts.map((part) => String(part).padStart(2, "0")).join(":") + point + String(timeMs % 1000).padStart(3, "0");
}

/** A text in WebVTT. */
export function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
