/** When each speaker speaks, when two do, and when none does: spans of seconds, as the server counts them. */

/** A shorter pause between two words of a speaker is part of the speech. `app/files/call_record.py` has the same. */
const PAUSE_S = 0.5;

/** For each speaker of a record the spans of its speech, in order. */
export function speechOf({ speakers, turns }) {
  return speakers.map((_, speaker) =>
    union(
      turns.filter((turn) => turn.speaker === speaker).flatMap((turn) => (turn.words.length > 0 ? turn.words : [turn])),
      PAUSE_S,
    ),
  );
}

/** When at least two of several lists of spans cover the same time. */
export function overlapsOf(speech) {
  const edges = speech.flat().flatMap(({ startS, endS }) => [
    { atS: startS, change: 1 },
    { atS: endS, change: -1 },
  ]);
  edges.sort((a, b) => a.atS - b.atS || a.change - b.change);
  const found = [];
  let n = 0;
  let beforeS = 0;
  for (const { atS, change } of edges) {
    if (n > 1 && atS > beforeS) {
      found.push({ startS: beforeS, endS: atS });
    }
    n += change;
    beforeS = atS;
  }
  return union(found, 0);
}

/** When none of several lists of spans covers the time, from 0 to the end. */
export function silencesOf(speech, durationS) {
  const found = [];
  let beforeS = 0;
  for (const { startS, endS } of [...union(speech.flat(), 0), { startS: durationS, endS: durationS }]) {
    if (startS > beforeS) {
      found.push({ startS: beforeS, endS: startS });
    }
    beforeS = Math.max(beforeS, endS);
  }
  return found;
}

/** The time that any of the spans covers, in order. Spans with at most `gapS` between them become one. */
function union(spans, gapS) {
  const joined = [];
  for (const { startS, endS } of [...spans].sort((a, b) => a.startS - b.startS)) {
    const last = joined.at(-1);
    if (last !== undefined && startS <= last.endS + gapS) {
      last.endS = Math.max(last.endS, endS);
    } else {
      joined.push({ startS, endS });
    }
  }
  return joined;
}
