/** The names of languages, in the user's language. Where the browser knows none, the server names those of its model. */

const names = new Map();
const known = new Intl.DisplayNames(undefined, { type: "language", fallback: "none" });

/** Remembers the English names of a list of `{ code, name }`. */
export function learnNames(languages) {
  languages.forEach(({ code, name }) => names.set(code, name));
}

/** The name of a language, or its code if it has no name. It begins with a capital letter, as in a list. */
export function languageName(code) {
  const name = browserName(code) ?? names.get(code) ?? code;
  return name.replace(/^\p{Ll}/u, (letter) => letter.toLocaleUpperCase());
}

function browserName(code) {
  try {
    return known.of(code);
  } catch {
    return undefined;
  }
}
