/** What the page says: why something did not work, the form for the API key, a notice about a call, a short toast. */

import { page } from "./elements.js";

const TOAST_MS = 2_500;

let timer;

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

/** A notice about the call that is open; "": none. */
export function notice(text) {
  page.notice.textContent = text;
  page.notice.hidden = text === "";
}

export function toast(text) {
  clearTimeout(timer);
  page.toast.hidden = false;
  page.toastText.textContent = text;
  timer = setTimeout(() => {
    page.toast.hidden = true;
    page.toastText.textContent = "";
  }, TOAST_MS);
}
