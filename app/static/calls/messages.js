/** What the page says beside the messages of the captions page: a notice about a call, a short toast. */

import { page } from "./elements.js";

const TOAST_MS = 2_500;

let timer;

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
