/** The keys of the page, and the sheet with their list and the colours. The captions page has the same settings. */

import { toggleTheme } from "../page/colours.js";
import { listKeys } from "../page/key_list.js";
import { change, onChange, settings } from "../page/settings.js";
import { opens } from "../page/sheets.js";
import { page } from "./elements.js";
import { goTo, position, STEP_S, step, togglePlaying } from "./player.js";
import { goToHit } from "./search.js";

let interruptions = [];

/** Key, as the browser names it; how it is written in the list; what it does, in words and in deed. */
const SHORTCUTS = [
  [" ", "Space", "Play or pause", togglePlaying],
  ["[", "[", "5 seconds back", () => step(-STEP_S)],
  ["]", "]", "5 seconds on", () => step(STEP_S)],
  ["i", "I", "The next interruption", nextInterruption],
  ["/", "/", "Search", () => page.search.focus()],
  ["n", "N", "The next hit", () => goToHit(1)],
  ["N", "Shift+N", "The hit before", () => goToHit(-1)],
  ["o", "O", "Open a file", () => (page.record.hidden ? page.choose : page.another).click(), true],
  ["d", "D", "Download", () => page.save.click()],
  ["t", "T", "Light or dark", toggleTheme, true],
  ["?", "?", "This list", () => page.keys.click(), true],
];
/** Keys that need no switch: they act on what has the focus. */
const OTHERS = [
  ["↑ ↓", "The turn before or after"],
  ["← →", "The word before or after; on the timeline, the time"],
  ["Enter", "Play from this turn or word; in the search, the next hit"],
  ["Esc", "Close a sheet"],
];

opens(page.keys, page.keysSheet, showSettings);
onChange(showSettings);
listKeys([...SHORTCUTS.map(([, written, text]) => [written, text]), ...OTHERS]);
page.useShortcuts.addEventListener("change", () => change({ useShortcuts: page.useShortcuts.checked }));
for (const radio of page.keysSheet.querySelectorAll("[name=theme]")) {
  radio.addEventListener("change", () => change({ theme: radio.value }));
}

/** Uses the interruptions of this record. */
export function useShortcutsFor(record) {
  ({ interruptions } = record);
}

document.addEventListener("keydown", (event) => {
  const isOff = !settings.useShortcuts || event.repeat || document.querySelector("dialog[open]") !== null;
  if (event.defaultPrevented || isOff || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) {
    return;
  }
  const found = SHORTCUTS.find(([name]) => name === event.key) ?? SHORTCUTS.find(([name]) => name === event.key.toLowerCase());
  if (found !== undefined && (found[4] === true || !page.record.hidden)) {
    event.preventDefault();
    found[3]();
  }
});

/** Whether the key means something to what has the focus. */
function isTyping({ key, target }) {
  return target.matches("select, input:not([type=range], [type=checkbox], [type=radio])") || (key === " " && target.matches("button, a, input"));
}

function nextInterruption() {
  const next = interruptions.find(({ atS }) => atS > position() + 0.05) ?? interruptions[0];
  if (next !== undefined) {
    goTo(next.atS, { plays: !page.audio.paused });
  }
}

function showSettings() {
  page.useShortcuts.checked = settings.useShortcuts;
  page.keysSheet.querySelector(`[name=theme][value=${settings.theme}]`).checked = true;
}
