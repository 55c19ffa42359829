/** Finds text in the transcript, and goes from hit to hit. */

import { page } from "./elements.js";
import { bring } from "./follow.js";
import { shownTurns } from "./turns.js";

/** For each hit the elements that show it. */
let hits = [];
let at = -1;

page.search.addEventListener("input", find);
page.searchForm.addEventListener("submit", (event) => event.preventDefault());
page.search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    goToHit(event.shiftKey ? -1 : 1);
  }
});
page.hitBefore.addEventListener("click", () => goToHit(-1));
page.hitAfter.addEventListener("click", () => goToHit(1));

/** Forgets the search, for another call. */
export function clearSearch() {
  page.search.value = "";
  find();
}

/** Goes so many hits on, round and round. */
export function goToHit(nHits) {
  if (hits.length > 0) {
    show(at < 0 ? (nHits > 0 ? 0 : hits.length - 1) : (at + nHits + hits.length) % hits.length);
  }
}

function find() {
  page.turns.querySelectorAll(".hit").forEach((each) => each.classList.remove("hit", "hit-now"));
  const wanted = page.search.value.trim().toLowerCase();
  hits = wanted === "" ? [] : shownTurns.flatMap((shown) => hitsIn(shown, wanted));
  hits.flat().forEach((each) => each.classList.add("hit"));
  at = -1;
  page.hitBefore.disabled = page.hitAfter.disabled = hits.length === 0;
  if (hits.length > 0) {
    show(0);
  } else {
    page.hits.textContent = wanted === "" ? "" : "No hit";
  }
}

function hitsIn({ pieces }, wanted) {
  // Lower case may be longer: that of a Turkish İ has two characters.
  const texts = pieces.map(({ element }) => element.textContent.toLowerCase());
  const text = texts.join("");
  let at = 0;
  const places = texts.map(({ length }, index) => ({ element: pieces[index].element, from: at, until: (at += length) }));
  const found = [];
  for (let from = text.indexOf(wanted); from >= 0; from = text.indexOf(wanted, from + wanted.length)) {
    const until = from + wanted.length;
    found.push(places.filter((place) => place.from < until && place.until > from).map(({ element }) => element));
  }
  return found;
}

function show(index) {
  hits[at]?.forEach((each) => each.classList.remove("hit-now"));
  at = index;
  hits[at].forEach((each) => each.classList.add("hit-now"));
  page.hits.textContent = `${at + 1} of ${hits.length}`;
  bring(hits[at][0]);
}
