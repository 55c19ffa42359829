/** Draws the transcript: final lines, and below them the lines that are open. */

import { clock } from "../tutti/clock.js";
import { make, page } from "./elements.js";
import { languageName } from "./language_names.js";
import { settings } from "./settings.js";
import { onTranscript } from "./transcript.js";

/** Lines further apart than this, in milliseconds, get the date and time between them. */
const PAUSE_MS = 10 * 60_000;

/** The node of each entry, for translations that come later. */
const nodes = new Map();
/** When the last line was said. */
let lastAt;
/** The language of the last line that has one. */
let lastLanguage;
/** The lines of open utterances, by number. */
const openNodes = new Map();

const when = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", hour: "numeric", minute: "2-digit" });

onTranscript((what, entry) => {
  if (what === "clear") {
    nodes.clear();
    lastAt = undefined;
    lastLanguage = undefined;
    page.finals.replaceChildren();
  } else if (what === "change") {
    drawTranslations(nodes.get(entry.n), entry.translations);
    drawSpeaker(nodes.get(entry.n), entry.speaker);
  } else {
    drawEntry(entry, what === "restore");
  }
  showContents();
});

function drawEntry(entry, isRestored) {
  const at = Date.parse(entry.at);
  if (lastAt === undefined ? isRestored : at - lastAt > PAUSE_MS) {
    page.finals.append(make("p", "when", when.format(at)));
  }
  lastAt = at;
  if (entry.language !== null && entry.language !== lastLanguage) {
    // A language that was chosen needs no name until another one is spoken.
    if (lastLanguage !== undefined || !settings.language) {
      page.finals.append(make("p", "spoken", languageName(entry.language)));
    }
    lastLanguage = entry.language;
  }
  const open = openNodes.get(entry.utterance);
  // A new node, so that screen readers read it aloud.
  const node = newLine(entry.start_s, entry.utterance ?? entry.kind);
  node.dataset.entry = entry.n;
  node.classList.add(entry.kind);
  node.tabIndex = -1;
  const text = node.querySelector(".text");
  text.classList.toggle("cut", entry.is_cut);
  if (entry.language !== null) {
    text.lang = entry.language;
  }
  node.querySelector(".solid").textContent = entry.text;
  drawSpeaker(node, entry.speaker);
  drawTranslations(node, entry.translations);
  if (open !== undefined && open.nextElementSibling !== null) {
    // The final text may be shorter. The line below it must not move.
    node.style.minHeight = open.style.minHeight;
  }
  page.finals.append(node);
  nodes.set(entry.n, node);
}

/** Shows an open utterance: a line of `Captions`, with its translations so far. */
export function drawOpen(line, translations) {
  let node = openNodes.get(line.utterance);
  const solid = line.segments + line.stable;
  if (node === undefined) {
    if (solid + line.tail === "") {
      return;
    }
    node = newLine(line.start_s, line.utterance);
    openNodes.set(line.utterance, node);
    page.live.append(node);
  }
  node.querySelector(".solid").textContent = solid;
  node.querySelector(".tail").textContent = line.tail;
  drawTranslations(node, translations);
  // A line never gets lower, even when its tail gets shorter. Otherwise the lines below it would jump.
  node.style.minHeight = `${node.getBoundingClientRect().height}px`;
  showContents();
}

/** Removes the line of an utterance that is open no more. */
export function removeOpen(utterance) {
  openNodes.get(utterance)?.remove();
  openNodes.delete(utterance);
  showContents();
}

function newLine(startS, utterance) {
  const node = make("p", "line");
  node.dataset.utterance = utterance;
  const time = make("time", "", clock(startS));
  time.dateTime = `PT${startS.toFixed(2)}S`;
  const text = make("span", "text");
  text.dir = "auto";
  text.append(make("span", "solid"), make("span", "tail"));
  node.append(time, text);
  return node;
}

function drawTranslations(node, translations) {
  for (const [language, pieces] of Object.entries(translations)) {
    let place = node.querySelector(`.translation[lang="${CSS.escape(language)}"]`);
    if (place === null) {
      place = make("span", "translation");
      place.lang = language;
      place.dir = "auto";
      node.append(place);
    }
    place.textContent = pieces.map(({ text }) => text).join("").trim();
  }
}

/** Names who speaks, before the text. */
function drawSpeaker(node, speaker = null) {
  let label = node.querySelector(".speaker");
  if (label === null && speaker !== null) {
    // Its letter says nothing of the direction of the text.
    label = make("bdi", "speaker");
    node.querySelector(".text").prepend(label);
  }
  if (label !== null) {
    label.textContent = `${speaker}: `;
  }
}

export function showContents() {
  const isEmpty = page.finals.childElementCount === 0;
  page.empty.hidden = !isEmpty || page.live.childElementCount > 0;
  page.save.disabled = isEmpty;
}
