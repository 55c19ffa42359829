/** The message above the controls, and the form for the API key that comes with some messages. */

import { page } from "./elements.js";

export function showMessage(text) {
  page.message.textContent = text;
  page.message.hidden = false;
}

export function hideMessage() {
  page.message.hidden = true;
  page.keyForm.hidden = true;
}

export function askForKey(text) {
  showMessage(text);
  page.keyForm.hidden = false;
  page.key.focus();
}

export function warn({ code, message }) {
  console.warn(`${code}: ${message}`);
}

/** The message of an error, or of a warning, as a sentence. */
export function sentence(error) {
  const text = error?.message ?? String(error);
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
