/** The list of the keys of a page, in one of its sheets. */

import { page } from "./elements.js";

/** `keys`: how each key is written, and what it does. */
export function listKeys(keys) {
  page.shortcuts.replaceChildren(...keys.flatMap(([written, text]) => row(written, text)));
}

function row(written, text) {
  const term = document.createElement("dt");
  const key = document.createElement("kbd");
  key.textContent = written;
  term.append(key);
  const description = document.createElement("dd");
  description.textContent = text;
  return [term, description];
}
