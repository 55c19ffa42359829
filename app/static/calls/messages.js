/** What the page says beside the messages of the captions page. */

import { page } from "./elements.js";

/** A notice about the call that is open; "": none. */
export function notice(text) {
  page.notice.textContent = text;
  page.notice.hidden = text === "";
}
