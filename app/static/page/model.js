/** The model of the server: its name, what it can hear, and its languages. */

import { page } from "./elements.js";

/** How long the request may take. */
const TIMEOUT_MS = 5_000;
/** The language that is chosen at first, if the model knows it. */
const FIRST_LANGUAGE = "en";

/** Shows which model listens and what it can hear, and offers its languages. */
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
    return;
  }
  page.model.textContent = `${model.name} · ${hearing(model)}`;
  page.model.title = page.model.textContent;
  page.noPeople.hidden = model.understands_people;
  const options = model.languages.map(({ code, name }) => new Option(name, code));
  options.sort((a, b) => a.label.localeCompare(b.label));
  if (options.length > 1) {
    options.unshift(new Option("Detect", ""));
  }
  page.language.replaceChildren(...options);
  page.language.value = model.languages.some(({ code }) => code === FIRST_LANGUAGE) ? FIRST_LANGUAGE : options[0].value;
}

/** What a model can hear, in a few words. */
function hearing({ understands_people: understandsPeople, languages }) {
  if (!understandsPeople) {
    return "synthetic voices only, hardly people";
  }
  return languages.length === 1 ? `${languages[0].name} only` : `${languages.length} languages`;
}
