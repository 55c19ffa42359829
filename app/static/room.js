/**
 * The page for the readers of a room, at /captions/ROOM. Options in its address:
 *
 * - `obs=1`: the captions alone, on a transparent ground, for OBS.
 * - `lines`: the last rows alone. `size`: the size of the text in pixels. `hide`: seconds of silence that hide the text.
 * - `language`: a translation. `show`: original, translation (the default with a language) or both.
 * - `theme`: light, dark or contrast.
 */

import "./tutti/element/index.js";

const THEMES = ["light", "dark", "contrast"];
/** Each press of a button changes the size of the text by this factor. */
const SIZE_STEP = 1.15;
const SMALLEST_PX = 14;
const LARGEST_PX = 160;
const SIZE_KEY = "tutti-room-size";

const element = (id) => document.getElementById(id);
const captions = element("captions");
const languageSelect = element("language");
const options = new URLSearchParams(location.search);
const isObs = options.get("obs") === "1";

const theme = options.get("theme");
if (THEMES.includes(theme)) {
  document.documentElement.dataset.theme = theme;
} else if (theme !== null) {
  console.warn(`theme: expected one of ${THEMES.join(", ")}, got ${JSON.stringify(theme)}`);
}
document.documentElement.toggleAttribute("data-obs", isObs);

for (const [option, attribute] of [
  ["lines", "lines"],
  ["hide", "clear-after"],
  ["language", "language"],
]) {
  const value = options.get(option);
  if (value !== null) {
    captions.setAttribute(attribute, value);
  }
}
captions.setAttribute("show", options.get("show") ?? "translation");
const size = options.get("size") ?? (isObs ? null : storedSize());
if (size !== null) {
  captions.setAttribute("size", size);
}

if (!isObs) {
  captions.texts = { states: { live: "Live" } };
}
captions.addEventListener("tutti-state", (event) => {
  document.body.dataset.state = event.detail.state;
});
captions.addEventListener("tutti-start", (event) => {
  const { title } = event.detail.room;
  if (title) {
    element("title").textContent = title;
    document.title = `${title} · Live captions`;
  }
});
captions.addEventListener("tutti-line", offerLanguages);
captions.addEventListener("tutti-warning", (event) => console.info(`${event.detail.code}: ${event.detail.message}`));
captions.addEventListener("tutti-error", (event) => console.warn(event.detail.error));
languageSelect.addEventListener("change", () => {
  captions.setAttribute("language", languageSelect.value);
});
element("smaller").addEventListener("click", () => changeSize(1 / SIZE_STEP));
element("larger").addEventListener("click", () => changeSize(SIZE_STEP));

captions.setAttribute("server", location.origin);
captions.setAttribute("room", location.pathname.split("/").at(-1));

/** Offers the languages in which there are translations. */
function offerLanguages() {
  const codes = [...new Set([...captions.captions.languages, ...(options.has("language") ? [options.get("language")] : [])])];
  if (codes.length === languageSelect.length - 1) {
    return;
  }
  const names = new Intl.DisplayNames(undefined, { type: "language" });
  const choices = codes.map((code) => new Option(nameOf(names, code), code));
  choices.sort((a, b) => a.label.localeCompare(b.label));
  languageSelect.replaceChildren(new Option("As spoken", ""), ...choices);
  languageSelect.value = captions.getAttribute("language") ?? "";
  element("language-choice").hidden = codes.length === 0;
}

/** The name of a language in the reader's language, or its code if that is none. */
function nameOf(names, code) {
  try {
    return names.of(code) ?? code;
  } catch {
    return code;
  }
}

function changeSize(factor) {
  // The size in the address may be none.
  const now = Number(captions.getAttribute("size")) || Number.parseFloat(getComputedStyle(captions).fontSize);
  const next = String(Math.round(Math.min(LARGEST_PX, Math.max(SMALLEST_PX, now * factor))));
  captions.setAttribute("size", next);
  try {
    localStorage.setItem(SIZE_KEY, next);
  } catch {
    // A browser that keeps nothing forgets the size with the page.
  }
}

function storedSize() {
  try {
    return localStorage.getItem(SIZE_KEY);
  } catch {
    return null;
  }
}
