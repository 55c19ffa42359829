/** Makes the page an app: it opens without a network, and the browser may install it. */

import { page } from "./elements.js";

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

/** Registers the service worker, and tells it which files the page consists of. */
export async function keepShell() {
  if (navigator.serviceWorker === undefined) {
    // The page is not secure, or the window is private.
    return;
  }
  try {
    await navigator.serviceWorker.register("/service-worker.js");
    const { active } = await navigator.serviceWorker.ready;
    const loaded = performance.getEntriesByType("resource").map(({ name }) => new URL(name));
    const files = loaded.filter(({ origin, pathname }) => origin === location.origin && pathname.startsWith("/static/"));
    active.postMessage({ type: "shell", paths: [...new Set(["/", ...LATER_FILES, ...files.map(({ pathname }) => pathname)])] });
  } catch (error) {
    console.warn("The page does not open without a network:", error);
  }
}
