/**
 * The parts of a session that few applications ask for. `connect` loads this module for those alone.
 * It shares no code with the rest: bundlers would make another file of that, which every page would load.
 */

export { EagerEnds } from "./eager_ends.js";
export { PendingTranslations } from "./translations.js";
export { UtteranceWords } from "./utterance_words.js";
