export { EagerEnds } from "./eager_ends.js";
export { PendingTranslations } from "./translations.js";
export { UtteranceWords } from "./utterance_words.js";
