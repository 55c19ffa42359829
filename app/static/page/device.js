/** What the page keeps on the device, in `localStorage`. A browser may refuse it, for example in a private window. */

/** The text under this key; null if there is none. */
export function read(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** The JSON value under this key; undefined if there is none, or something else. */
export function readJson(key) {
  const text = read(key);
  try {
    return text === null ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns whether the device keeps it: it may be full, or the browser may refuse. */
export function write(key, text) {
  try {
    localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

export function remove(key) {
  try {
    localStorage.removeItem(key);
  } catch {
    // A browser that refuses has kept nothing.
  }
}

/** All keys that begin with this text, in their order. */
export function keys(prefix) {
  try {
    return Object.keys(localStorage)
      .filter((key) => key.startsWith(prefix))
      .sort();
  } catch {
    return [];
  }
}
