/** The names of languages. The server names those of its model; the browser knows the others. */

const names = new Map();
let known;

/** Remembers the names of a list of `{ code, name }`. */
export function learnNames(languages) {
  languages.forEach(({ code, name }) => names.set(code, name));
}

/** The name of a language in English, or its code if it has no name. */
export function languageName(code) {
  if (names.has(code)) {
    return names.get(code);
  }
  known ??= new Intl.DisplayNames("en", { type: "language" });
  try {
    return known.of(code) ?? code;
  } catch {
    return code;
  }
}
