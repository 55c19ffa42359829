/** The timeline: a lane for each speaker, one for the time when both speak and one for silence, and the position. */

import { clock } from "../tutti/clock.js";
import { draw, make, page } from "./elements.js";
import { colourOf } from "./figures.js";
import { goTo, onTime } from "./player.js";
import { overlapsOf, silencesOf, speechOf } from "./speech.js";

/** Distances between the times below the lanes, in seconds. */
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];
const MAX_TICKS = 7;

let shown;

export function showTimeline(record) {
  const speech = speechOf(record);
  shown = { record, speech };
  const lanes = record.speakers.map(({ name }, index) => ({ name, spans: speech[index], kind: colourOf(index) }));
  if (record.speakers.length > 1) {
    lanes.push({ name: record.speakers.length > 2 ? "Several" : "Both", spans: overlapsOf(speech), kind: "overlap" });
  }
  lanes.push({ name: "Silence", spans: silencesOf(speech, record.durationS), kind: "silence" });
  page.laneNames.replaceChildren(...lanes.map(({ name, kind }) => make("span", `lane-name ${kind}`, name)));
  page.lanes.replaceChildren(...lanes.map((lane, index) => laneOf(lane, index, record)), mutedOf(record));
  page.ticks.replaceChildren(...ticksOf(record.durationS));
  page.legendMuted.hidden = record.redactions.length === 0;
  page.position.max = String(record.durationS);
  showPosition(0);
}

page.position.addEventListener("input", () => goTo(Number(page.position.value)));
page.position.addEventListener("pointermove", ({ clientX }) => showHover(clientX));
page.position.addEventListener("pointerleave", () => {
  page.hover.hidden = true;
});
onTime(showPosition);
// The figures stay below it while the transcript scrolls.
new ResizeObserver(() => page.record.style.setProperty("--timeline", `${page.timeline.offsetHeight}px`)).observe(page.timeline);

function laneOf({ spans, kind }, index, { durationS, interruptions, speakers }) {
  const lane = make("div", `lane ${kind}`);
  lane.append(drawing(spans, durationS));
  for (const { atS, by, of } of interruptions) {
    if (speakers[index]?.name === by) {
      const mark = make("span", "cut-mark");
      mark.style.left = `${(100 * atS) / durationS}%`;
      mark.title = `${clock(atS)} ${by} interrupts ${of}`;
      lane.append(mark);
    }
  }
  return lane;
}

function mutedOf({ durationS, redactions }) {
  const all = make("div", "muted-spans");
  all.append(drawing(redactions, durationS));
  return all;
}

function drawing(spans, durationS) {
  const svg = draw("svg", { viewBox: `0 0 ${Math.max(durationS, 0.001)} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(...spans.map(({ startS, endS }) => draw("rect", { x: startS, y: 0, width: endS - startS, height: 1 })));
  return svg;
}

function ticksOf(durationS) {
  const stepS = STEPS_S.find((each) => durationS / each <= MAX_TICKS) ?? STEPS_S.at(-1);
  const nTicks = Math.floor(durationS / stepS) + 1;
  return Array.from({ length: nTicks }, (_, index) => {
    const tick = make("span", "tick-at", clock(index * stepS));
    tick.style.left = `${durationS > 0 ? (100 * index * stepS) / durationS : 0}%`;
    return tick;
  });
}

function showPosition(timeS) {
  page.position.value = String(timeS);
  page.position.setAttribute("aria-valuetext", described(timeS));
}

function showHover(clientX) {
  const box = page.position.getBoundingClientRect();
  const share = Math.min(1, Math.max(0, (clientX - box.left) / box.width));
  page.hover.hidden = false;
  page.hover.textContent = described(share * shown.record.durationS);
  page.hover.style.left = `${100 * share}%`;
  page.hover.classList.toggle("at-end", share > 0.5);
}

/** A time, and who speaks then. */
function described(timeS) {
  const { record, speech } = shown;
  const names = record.speakers.filter((_, index) => speech[index].some(({ startS, endS }) => startS <= timeS && timeS < endS));
  const who = names.map(({ name }) => name).join(" and ");
  return `${clock(timeS)} ${who || "silence"}`;
}
