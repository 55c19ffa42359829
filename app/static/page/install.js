/** Makes the page an app: it opens without a network, and the browser may install it. */

import { page } from "./elements.js";
import { keepShell } from "./shell.js";

let installation;

window.addEventListener("beforeinstallprompt", (event) => {
  event.preventDefault();
  installation = event;
  page.install.hidden = false;
});
page.install.addEventListener("click", () => void installation?.prompt());
window.addEventListener("appinstalled", () => {
  page.install.hidden = true;
});

/** What the page consists of, too, and loads when somebody begins to speak. */
const LATER_FILES = ["worklet", "screen_lock", "optional", "eager_ends", "translations", "utterance_words"].map(
  (name) => `/static/tutti/${name}.js`,
);

/** Keeps the page for the time without a network. */
export function keepPage() {
  return keepShell("/", LATER_FILES);
}
