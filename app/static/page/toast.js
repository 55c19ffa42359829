/** A short notice that goes by itself. It may offer to undo what was done, on a page that has the button. */

import { page } from "./elements.js";

const SHOWN_MS = 2_500;
/** What can be undone stays longer, so that slow readers and slow hands reach it. */
const UNDO_MS = 20_000;

let timer;
let undo;

page.undo?.addEventListener("click", () => {
  const act = undo;
  hide();
  act?.();
  page.toggle.focus();
});

/** Shows a text. With `onUndo`, a button calls it. */
export function toast(text, onUndo) {
  clearTimeout(timer);
  undo = onUndo;
  page.undo?.toggleAttribute("hidden", onUndo === undefined);
  page.toast.hidden = false;
  page.toastText.textContent = text;
  timer = setTimeout(hide, onUndo === undefined ? SHOWN_MS : UNDO_MS);
}

function hide() {
  undo = undefined;
  page.toast.hidden = true;
  page.toastText.textContent = "";
}
