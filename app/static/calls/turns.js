/** The transcript: the turns with their words, what the model was not sure of, interruptions and long silences. */

import { clock } from "../tutti/clock.js";
import { make, page } from "./elements.js";
import { colourOf } from "./figures.js";
import { piecesOf } from "./pieces.js";
import { goTo } from "./player.js";
import { silencesOf, speechOf } from "./speech.js";
import { length, percent } from "./units.js";

/** A word below this confidence is marked. The confidence is the mean probability of its tokens. */
const UNSURE = 0.5;
/** A longer silence between two turns is shown as a line of its own, in seconds. */
const LONG_SILENCE_S = 3;

/** What is shown of each turn: `{ turn, element, pieces }`. */
export let shownTurns = [];

export function showTurns(record) {
  const silences = silencesOf(speechOf(record), record.durationS).filter(({ startS, endS }) => endS - startS >= LONG_SILENCE_S);
  const rows = [];
  shownTurns = record.turns.map((turn) => {
    // A turn may begin a little before its first word, and then before the silence ends.
    while (silences.length > 0 && (silences[0].startS + silences[0].endS) / 2 <= turn.startS) {
      rows.push(silenceRow(silences.shift()));
    }
    const made = turnRow(turn, record);
    rows.push(made.element);
    return made;
  });
  rows.push(...silences.map(silenceRow));
  page.turns.replaceChildren(...rows);
  shownTurns[0]?.element.querySelector(".starts").setAttribute("tabindex", "0");
  page.unsureNote.hidden = page.turns.querySelector(".unsure") === null;
}

/** The last turn that has begun at a time; -1 before the first. */
export function turnAt(timeS) {
  return shownTurns.findLastIndex(({ turn }) => turn.startS <= timeS);
}

page.turns.addEventListener("click", (event) => {
  const found = shownTurns.find(({ element }) => element.contains(event.target));
  if (found === undefined || !getSelection().isCollapsed) {
    return;
  }
  const word = event.target.closest(".word");
  setRoving(found);
  goTo(startOf(found, word), { plays: true });
});

page.turns.addEventListener("keydown", (event) => {
  const index = shownTurns.findIndex(({ element }) => element.contains(event.target));
  const shown = shownTurns[index];
  if (shown === undefined || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const word = event.target.closest(".word");
  const words = shown.pieces.filter((piece) => piece.word !== undefined).map(({ element }) => element);
  const at = words.indexOf(word);
  const target = {
    ArrowDown: () => whenOf(shownTurns[index + 1]),
    ArrowUp: () => whenOf(shownTurns[index - 1]),
    ArrowRight: () => words[at + 1],
    ArrowLeft: () => (at > 0 ? words[at - 1] : whenOf(shown)),
    Home: () => whenOf(shownTurns[0]),
    End: () => whenOf(shownTurns.at(-1)),
  }[event.key];
  if (target !== undefined) {
    event.preventDefault();
    target()?.focus();
  } else if (word !== null && (event.key === "Enter" || event.key === " ")) {
    event.preventDefault();
    goTo(startOf(shown, word), { plays: true });
  }
});

page.turns.addEventListener("focusin", (event) => {
  const found = shownTurns.find(({ element }) => element.contains(event.target));
  if (found !== undefined) {
    setRoving(found);
  }
});

/** One turn is in the order of Tab, so that the keyboard passes a long transcript at once. The arrow keys reach the others. */
function setRoving(shown) {
  page.turns.querySelector(".starts[tabindex='0']")?.setAttribute("tabindex", "-1");
  whenOf(shown).setAttribute("tabindex", "0");
}

function whenOf(shown) {
  return shown?.element.querySelector(".starts");
}

function startOf({ turn }, word) {
  return word === null ? turn.startS : turn.words[Number(word.dataset.word)].startS;
}

function turnRow(turn, { speakers, interruptions }) {
  const name = speakers[turn.speaker].name;
  const element = make("li", `turn ${colourOf(turn.speaker)}`);
  const when = make("button", "starts", clock(turn.startS));
  when.type = "button";
  when.tabIndex = -1;
  when.setAttribute("aria-label", `${clock(turn.startS)}, ${name}`);
  const who = make("p", "who");
  who.append(make("span", "swatch"), make("span", "name", name));
  const said = make("p", "said");
  said.dir = "auto";
  const cuts = interruptions.filter(({ atS, by }) => by === name && turn.startS <= atS + 0.01 && atS < turn.endS);
  const pieces = piecesOf(turn).map(({ text, word }) => {
    for (const cut of word === undefined ? [] : cuts.filter(({ atS }) => turn.words[word].endS > atS)) {
      said.append(cutMark(cut));
      cuts.splice(cuts.indexOf(cut), 1);
    }
    const piece = word === undefined ? make("span", "", text) : wordOf(turn.words[word], text, word);
    said.append(piece);
    return { element: piece, word };
  });
  // Of a turn without words.
  said.prepend(...cuts.map(cutMark));
  element.append(when, who, said);
  return { turn, element, pieces };
}

function wordOf({ confidence }, text, index) {
  const element = make("span", "word", text);
  element.tabIndex = -1;
  element.dataset.word = String(index);
  if (confidence < UNSURE) {
    element.classList.add("unsure");
    element.title = `Confidence ${percent(confidence)}`;
  }
  return element;
}

function cutMark({ of }) {
  return make("bdi", "cut-in", `interrupts ${of}`);
}

function silenceRow({ startS, endS }) {
  return make("li", "silence-row", `${length(endS - startS)} of silence`);
}
