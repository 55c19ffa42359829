/** The figures of a call: of the whole, of each speaker, and the list of interruptions. */

import { clock } from "../tutti/clock.js";
import { make, page } from "./elements.js";
import { goTo } from "./player.js";
import { silencesOf, speechOf } from "./speech.js";
import { count, length, percent } from "./units.js";

/** The number of colours for speakers; further speakers share them. */
const N_COLOURS = 8;

/** The class with the colour of a speaker. */
export function colourOf(speaker) {
  return `speaker-${speaker % N_COLOURS}`;
}

/** Shows the figures of a record. */
export function showFigures(record, title) {
  page.recordTitle.textContent = title;
  document.title = `${title} · Call records · tutti`;
  const nWords = record.speakers.reduce((sum, each) => sum + each.nWords, 0);
  page.recordSummary.textContent = [
    clock(record.durationS),
    record.speakers.map(({ name }) => name).join(", ") || "no speakers",
    count(record.turns.length, "turn"),
    count(nWords, "word"),
  ].join(" · ");
  const longestS = Math.max(0, ...silencesOf(speechOf(record), record.durationS).map(({ startS, endS }) => endS - startS));
  const share = record.durationS > 0 ? record.silenceS / record.durationS : 0;
  page.callFigures.replaceChildren(
    ...pair("Silence", `${percent(share)} · ${length(record.silenceS)}`),
    ...pair("Longest silence", length(longestS)),
    ...pair("Both speak", length(record.overlapS)),
    ...pair("Interruptions", String(record.interruptions.length)),
    ...(record.redactions.length > 0 ? pair("Redacted places", String(record.redactions.length)) : []),
  );
  page.speakers.replaceChildren(...record.speakers.map(card));
  page.interruptionsCard.hidden = record.interruptions.length === 0;
  page.interruptions.replaceChildren(...record.interruptions.map(interruption));
}

function card(speaker, index) {
  const section = make("section", `card speaker-card ${colourOf(index)}`);
  const head = make("h3", "who");
  head.append(make("span", "swatch"), make("span", "name", speaker.name), make("span", "share", percent(speaker.talkShare)));
  const bar = make("div", "bar-of-share");
  const filled = make("span");
  filled.style.width = `${Math.min(100, 100 * speaker.talkShare)}%`;
  bar.append(filled);
  const figures = make("dl", "pairs");
  figures.append(
    ...pair("Talk", length(speaker.talkS)),
    ...pair("Words per minute", String(Math.round(speaker.wordsPerMinute))),
    ...pair("Turns", String(speaker.nTurns)),
    ...pair("Longest turn", length(speaker.longestTurnS)),
    ...pair("Interruptions", String(speaker.nInterruptions)),
  );
  section.append(head, bar, figures);
  return section;
}

function interruption({ atS, by, of }) {
  const item = make("li");
  const button = make("button");
  button.type = "button";
  button.append(make("span", "at", clock(atS)), make("span", "", `${by} interrupts ${of}`));
  button.addEventListener("click", () => goTo(atS, { plays: true }));
  item.append(button);
  return item;
}

function pair(term, value) {
  return [make("dt", "", term), make("dd", "", value)];
}
