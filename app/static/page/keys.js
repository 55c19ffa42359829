/** The API key, while the page is open. It is kept nowhere. */

import { page } from "./elements.js";

let key;

/** The key of the form; undefined: none. */
export function apiKey() {
  return key;
}

/** `listener` is called when the user has entered a key. */
export function onKey(listener) {
  page.keyForm.addEventListener("submit", (event) => {
    event.preventDefault();
    key = page.key.value.trim() === "" ? undefined : page.key.value.trim();
    listener();
  });
}
