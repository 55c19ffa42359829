/**
 * Opens the page when the server cannot be reached. While it can be, everything comes from the server: the copies here are
 * only for the time without it. Nothing but the files of the page is ever kept, so no text, no sound and no key.
 */

const CACHE = "tutti-shell";
/** What a proxy answers when the server behind it is down. */
const IS_DOWN = [502, 503, 504];

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

/** The page says which files it consists of: those are kept, and no others. */
self.addEventListener("message", (event) => {
  if (event.data?.type === "shell") {
    event.waitUntil(keepOnly(event.data.paths.filter(isShell)));
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
  return pathname === "/" || pathname.startsWith("/static/");
}

/** The server's answer. Only where there is none, the kept one. */
async function answer(request, pathname) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(new Request(request, { cache: "no-cache" }));
    if (response.ok && (await cache.match(pathname)) !== undefined) {
      await cache.put(pathname, response.clone());
    }
    return IS_DOWN.includes(response.status) ? ((await cache.match(pathname)) ?? response) : response;
  } catch (error) {
    const kept = await cache.match(pathname);
    if (kept === undefined) {
      throw error;
    }
    return kept;
  }
}

async function keepOnly(paths) {
  const cache = await caches.open(CACHE);
  const kept = (await cache.keys()).map(({ url }) => new URL(url).pathname);
  await Promise.all(kept.filter((path) => !paths.includes(path)).map((path) => cache.delete(path)));
  // A file that cannot be fetched now is kept at the next visit.
  await Promise.allSettled(paths.filter((path) => !kept.includes(path)).map((path) => cache.add(new Request(path, { cache: "no-cache" }))));
}
