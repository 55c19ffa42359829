/** The model of the server: its name, what it can hear and which languages it knows; and what else the server offers. */

import { page } from "./elements.js";
import { languageName, learnNames } from "./language_names.js";
import { settings } from "./settings.js";

/** How long the request may take. */
const TIMEOUT_MS = 5_000;

/** Shows what the server tells of its model. Returns it, or undefined if the server does not answer. */
export async function showModel() {
  let model;
  try {
    const response = await fetch("/page/model", { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!response.ok) {
      throw new Error(`GET /page/model was answered with status ${response.status}`);
    }
    model = await response.json();
  } catch (error) {
    page.model.textContent = "The model is not known";
    console.warn("The page cannot show the model and its languages:", error);
    return undefined;
  }
  page.model.textContent = `${model.name} · ${hearing(model.languages)}`;
  page.model.title = page.model.textContent;
  learnNames(model.languages);
  offerLanguages(model.languages);
  return model;
}

function offerLanguages(languages) {
  const options = languages.map(({ code }) => new Option(languageName(code), code));
  options.sort((a, b) => a.label.localeCompare(b.label));
  if (options.length > 1) {
    options.unshift(new Option("Detect language", ""));
  }
  page.language.replaceChildren(...options);
  const codes = options.map(({ value }) => value);
  page.language.value = codes.includes(settings.language) ? settings.language : codes[0];
}

/** What a model can hear, in a few words. */
function hearing(languages) {
  return languages.length === 1 ? `${languageName(languages[0].code)} only` : `${languages.length} languages`;
}
