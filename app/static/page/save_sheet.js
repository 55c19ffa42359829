/** The sheet that copies, downloads and clears the transcript. */

import { copyAndTell } from "./clipboard.js";
import { download } from "./download.js";
import { page } from "./elements.js";
import { FORMATS, fileName, toText } from "./exports.js";
import { languageName } from "./language_names.js";
import { change, settings } from "./settings.js";
import { opens } from "./sheets.js";
import { toast } from "./toast.js";
import { all, clear, restore, translationLanguages } from "./transcript.js";

let onCleared = () => {};

/** `listener` is called when the user has cleared the transcript. */
export function whenCleared(listener) {
  onCleared = listener;
}

opens(page.save, page.saveSheet, () => {
  const languages = translationLanguages();
  page.saveLanguageField.hidden = languages.length === 0;
  const chosen = languages.includes(page.saveLanguage.value) ? page.saveLanguage.value : "";
  page.saveLanguage.replaceChildren(new Option("As spoken", ""), ...languages.map((code) => new Option(languageName(code), code)));
  page.saveLanguage.value = chosen;
  page.withTimes.checked = settings.withTimes;
});

page.withTimes.addEventListener("change", () => change({ withTimes: page.withTimes.checked }));

page.copy.addEventListener("click", () => {
  page.saveSheet.close();
  void copyAndTell(toText(all(), page.saveLanguage.value, settings.withTimes), "Transcript copied");
});

for (const button of page.saveSheet.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => save(button.dataset.format));
}

page.clear.addEventListener("click", () => {
  page.saveSheet.close();
  const removed = clear();
  onCleared();
  page.toggle.focus();
  toast("The transcript is cleared", () => restore(removed));
});

function save(format) {
  const language = page.saveLanguage.value;
  const { type, write } = FORMATS[format];
  const name = fileName(all(), format, language);
  download(write(all(), { language, withTimes: settings.withTimes }), type, name);
  page.saveSheet.close();
  toast(`Saved as ${name}`);
}
