/**
 * Final segments as subtitles: each segment with text becomes one cue. The server's own subtitles cut long segments too:
 * to get them, upload a file with `response_format` `srt` or `vtt`.
 *
 * Source of the syntax: W3C, "WebVTT: The Web Video Text Tracks Format".
 */

import type { SegmentEvent } from "./events.js";

/** What a cue needs of a segment. */
export type Subtitle = Pick<SegmentEvent, "start_s" | "end_s" | "text">;

/** The segments as SubRip. */
export function toSrt(segments: Iterable<Subtitle>): string {
  // SubRip has no way to escape an arrow.
  return cues(segments, ",")
    .map(([times, text], index) => `${index + 1}\n${times}\n${text.replace(/-{2,}>/g, "->")}\n\n`)
    .join("");
}

/** The segments as WebVTT. */
export function toVtt(segments: Iterable<Subtitle>): string {
  return ["WEBVTT\n\n", ...cues(segments, ".").map(([times, text]) => `${times}\n${escaped(text)}\n\n`)].join("");
}

/** The line with the times and the line with the text of each cue, in the order of time. None is empty or of no length. */
function cues(segments: Iterable<Subtitle>, point: string): [times: string, text: string][] {
  return [...segments]
    .sort((a, b) => a.start_s - b.start_s)
    .map(({ start_s, end_s, text }): [string, string] => [times(start_s, end_s, point), oneLine(text)])
    .filter(([, text]) => text !== "");
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
