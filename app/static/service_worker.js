/**
 * Opens the page when the server cannot be reached. While it can be, everything comes from the server: the copies here are
 * only for the time without it. Nothing but the files of the page is ever kept, so no text, no sound and no key.
 */

/** The pages, and the name of the copies of each. */
const CACHES = { "/": "tutti-shell", "/calls": "tutti-calls" };
/** What a proxy answers when the server behind it is down. */
const IS_DOWN = [502, 503, 504];

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

/** A page says which files it consists of: those are kept, and no others. */
self.addEventListener("message", (event) => {
  if (event.data?.type === "shell") {
    // An older page does not say which one it is.
    event.waitUntil(keepOnly(CACHES[event.data.page ?? "/"], event.data.paths.filter(isShell)));
  }
});

self.addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  const { origin, pathname } = new URL(url);
  if (method === "GET" && origin === self.location.origin && isShell(pathname)) {
    event.respondWith(answer(event.request, pathname));
  }
});

function isShell(pathname) {
  return pathname in CACHES || pathname.startsWith("/static/");
}

/** The server's answer. Only where there is none, the kept one. */
async function answer(request, pathname) {
  try {
    const response = await fetch(new Request(request, { cache: "no-cache" }));
    if (response.ok) {
      // A full device keeps the old copy. The answer of the server is the one to show nevertheless.
      await renew(pathname, response).catch((error) => console.warn(`${pathname} is not kept:`, error));
    }
    return IS_DOWN.includes(response.status) ? ((await caches.match(pathname)) ?? response) : response;
  } catch (error) {
    const kept = await caches.match(pathname);
    if (kept === undefined) {
      throw error;
    }
    return kept;
  }
}

/** Puts an answer in the place of the copies that there are. */
async function renew(pathname, response) {
  for (const name of Object.values(CACHES)) {
    const cache = await caches.open(name);
    if ((await cache.match(pathname)) !== undefined) {
      await cache.put(pathname, response.clone());
    }
  }
}

async function keepOnly(name, paths) {
  const cache = await caches.open(name);
  const kept = (await cache.keys()).map(({ url }) => new URL(url).pathname);
  await Promise.all(kept.filter((path) => !paths.includes(path)).map((path) => cache.delete(path)));
  // A file that cannot be fetched now is kept at the next visit.
  await Promise.allSettled(paths.filter((path) => !kept.includes(path)).map((path) => cache.add(new Request(path, { cache: "no-cache" }))));
}
