/** Marks the words and the turn at the position, and keeps them in sight until the user looks elsewhere. */

import { page } from "./elements.js";
import { onTime } from "./player.js";
import { shownTurns, turnAt } from "./turns.js";

/** A word is marked until so long after its end, so that the mark does not flicker between two words. In seconds. */
const HOLD_S = 0.3;

let words = [];
let marked = new Set();
let currentTurn;
let isFollowing = true;

/** Gets ready for the turns that are shown. */
export function followTurns(record) {
  words = record.speakers.map((_, speaker) =>
    shownTurns
      .filter(({ turn }) => turn.speaker === speaker)
      .flatMap(({ turn, pieces }) =>
        pieces.filter(({ word }) => word !== undefined).map(({ element, word }) => ({ element, ...turn.words[word] })),
      )
      .sort((a, b) => a.startS - b.startS),
  );
  marked = new Set();
  currentTurn = undefined;
  setFollowing(true);
  page.main.scrollTop = 0;
}

/** Brings an element into sight, in the middle of what is free. */
export function bring(element) {
  const box = element.getBoundingClientRect();
  const { top, bottom } = free();
  const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth";
  page.main.scrollBy({ top: (box.top + box.bottom - top - bottom) / 2, behavior });
}

onTime((timeS, isJump) => {
  const now = new Set(words.map((each) => wordAt(each, timeS)).filter((each) => each !== undefined));
  mark(now);
  const turn = shownTurns[turnAt(timeS)]?.element;
  if (turn !== currentTurn) {
    currentTurn?.classList.remove("current");
    turn?.classList.add("current");
    currentTurn = turn;
  }
  if (isJump) {
    setFollowing(true);
  }
  const target = [...now][0] ?? turn;
  if (isFollowing && target !== undefined && (isJump || page.audio.paused === false) && !isInSight(target)) {
    bring(target);
  }
});

for (const type of ["wheel", "touchmove"]) {
  page.main.addEventListener(type, () => page.audio.paused || setFollowing(false), { passive: true });
}
page.follow.addEventListener("click", () => {
  setFollowing(true);
  if (currentTurn !== undefined) {
    bring(currentTurn);
  }
});
page.audio.addEventListener("pause", () => setFollowing(true));

function setFollowing(follows) {
  isFollowing = follows;
  page.follow.hidden = follows;
}

function mark(now) {
  marked.forEach((element) => now.has(element) || element.classList.remove("now"));
  now.forEach((element) => element.classList.add("now"));
  marked = now;
}

/** The element of the word that a speaker says at a time; undefined between words. */
function wordAt(all, timeS) {
  let from = 0;
  let until = all.length;
  while (from < until) {
    const middle = (from + until) >> 1;
    if (all[middle].startS <= timeS) {
      from = middle + 1;
    } else {
      until = middle;
    }
  }
  const found = all[from - 1];
  return found !== undefined && timeS < found.endS + HOLD_S ? found.element : undefined;
}

function isInSight(element) {
  const box = element.getBoundingClientRect();
  const { top, bottom } = free();
  return box.top >= top && box.bottom <= bottom;
}

/** Where the transcript can be seen. The timeline stays at the top of large windows. */
function free() {
  const { top, bottom } = page.main.getBoundingClientRect();
  const isSticky = getComputedStyle(page.timeline).position === "sticky";
  return { top: isSticky ? Math.max(top, page.timeline.getBoundingClientRect().bottom) : top, bottom };
}
