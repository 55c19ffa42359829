/** The keys of the page. They do nothing while text is typed, a sheet is open, or the settings switch them off. */

import { copyAndTell } from "./clipboard.js";
import { toggleTheme } from "./colours.js";
import { page } from "./elements.js";
import { toText } from "./exports.js";
import { listKeys } from "./key_list.js";
import { settings } from "./settings.js";
import { all, isEmpty } from "./transcript.js";
import { isLarge, leaveLarge, resize, toggleFull, toggleLarge } from "./views.js";

/** Key, as the browser names it; how it is written in the list; what it does, in words and in deed. */
const SHORTCUTS = [
  ["s", "S", "Start or stop", () => page.toggle.click()],
  ["p", "P", "Pause or go on", () => clickIfShown(page.pause)],
  ["o", "O", "Open a file", () => clickIfShown(page.file)],
  ["c", "C", "Copy the transcript", () => isEmpty() || copyAndTell(toText(all(), "", settings.withTimes), "Transcript copied")],
  ["d", "D", "Save the transcript", () => clickIfShown(page.save)],
  ["h", "H", "Share the captions", () => clickIfShown(page.share)],
  ["l", "L", "Large type", toggleLarge],
  ["f", "F", "Full screen", toggleFull],
  ["t", "T", "Light or dark", toggleTheme],
  ["+", "+", "Larger text", () => resize(1)],
  ["-", "−", "Smaller text", () => resize(-1)],
  ["End", "End", "Newest text", () => page.latest.click()],
  [",", ",", "Settings and this list", () => page.settings.click()],
];
/** Keys that need no switch: they are the browser's own, or act on a line that has the focus. */
const OTHERS = [
  ["↑ ↓", "Line before, line after"],
  ["Enter", "Copy this line"],
  ["Shift+Enter", "Copy this line with its time"],
  ["Esc", "Leave large type, close a sheet"],
];

listKeys([...SHORTCUTS.map(([, written, text]) => [written, text]), ...OTHERS]);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) {
    return;
  }
  if (event.key === "Escape" && isLarge()) {
    leaveLarge();
    return;
  }
  if (!settings.useShortcuts || event.repeat || isTyping(event.target)) {
    return;
  }
  const key = event.key === "=" ? "+" : event.key;
  const found = SHORTCUTS.find(([name]) => name === key || name === key.toLowerCase());
  if (found !== undefined) {
    event.preventDefault();
    found[3]();
  }
});

/** Whether letters mean something to the element. One of a sheet that was just closed may have the focus for a moment. */
function isTyping(target) {
  const typesInto = "textarea, select, input:not([type=checkbox], [type=radio], [type=range])";
  return target.matches(typesInto) && target.getClientRects().length > 0;
}

function clickIfShown(button) {
  if (button === page.file || (!button.hidden && !button.disabled)) {
    button.click();
  }
}
