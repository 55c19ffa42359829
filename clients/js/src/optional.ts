/**
 * The parts of a session that few applications ask for. `connect` loads this module for those alone.
 * It shares no code with the rest: bundlers would make another file of that, which every page would load.
 */

import type { Parts } from "./continuity.js";
import { EagerEnds } from "./eager_ends.js";
import type { StartOptions } from "./events.js";
import { PendingTranslations } from "./translations.js";
import { UtteranceWords } from "./utterance_words.js";

/** The parts that a session with these options needs. */
export function partsFor({ translate = [], turns, words }: StartOptions): Parts {
  return {
    ...(translate.length > 0 ? { translations: new PendingTranslations(translate) } : {}),
    ...(turns ? { eagerEnds: new EagerEnds() } : {}),
    ...(words ? { makeWords: () => new UtteranceWords() } : {}),
  };
}
