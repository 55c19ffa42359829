/** Tells the service worker which files a page consists of, so that it opens without a network. */

/** `path` is that of the page; `laterFiles` are files that it loads later. */
export async function keepShell(path, laterFiles = []) {
  if (navigator.serviceWorker === undefined) {
    // The page is not secure, or the window is private.
    return;
  }
  try {
    await navigator.serviceWorker.register("/service-worker.js");
    const { active } = await navigator.serviceWorker.ready;
    const loaded = performance.getEntriesByType("resource").map(({ name }) => new URL(name));
    const files = loaded.filter(({ origin, pathname }) => origin === location.origin && pathname.startsWith("/static/"));
    active.postMessage({ type: "shell", page: path, paths: [...new Set([path, ...laterFiles, ...files.map(({ pathname }) => pathname)])] });
  } catch (error) {
    console.warn("The page does not open without a network:", error);
  }
}
