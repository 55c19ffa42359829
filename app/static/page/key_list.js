/** The list of the keys of a page, in one of its sheets. */

import { make, page } from "./elements.js";

/** `keys`: how each key is written, and what it does. */
export function listKeys(keys) {
  page.shortcuts.replaceChildren(...keys.flatMap(([written, text]) => row(written, text)));
}

function row(written, text) {
  const term = make("dt");
  term.append(make("kbd", "", written));
  return [term, make("dd", "", text)];
}
