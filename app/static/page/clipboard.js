/** Puts text on the clipboard. */

import { toast } from "./toast.js";

/** Shows `done` afterwards, or that the browser does not allow it. */
export async function copyAndTell(text, done) {
  toast((await copy(text)) ? done : "The browser does not allow copying here");
}

async function copy(text) {
  try {
    // `navigator.clipboard` does not exist on pages that are not secure.
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Only what is in an open dialog can be selected.
    const place = document.querySelector("dialog[open]") ?? document.body;
    const focused = document.activeElement;
    const area = document.createElement("textarea");
    area.value = text;
    place.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return isCopied;
  }
}
