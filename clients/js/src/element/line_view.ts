/** One line in the document: its time, its label, what was said and its translation. */

import { clock } from "../clock.js";
import type { CaptionLine } from "./transcript.js";

/** What a line shows of itself. */
export type Show = "original" | "translation" | "both";

/** How lines are shown. */
export interface LineOptions {
  readonly show: Show;
  /** The language of the translation; undefined: none is shown. */
  readonly language: string | undefined;
  /** The names of the channels; a channel without one has none. */
  readonly labels: readonly string[];
  readonly hasTimes: boolean;
  /** What stands in the place of lost audio; `{time}` is its end. */
  readonly gap: string;
}

/** Scripts from right to left. The languages that are written in several are not here; their text decides. */
const RIGHT_TO_LEFT = ["ar", "ckb", "dv", "fa", "he", "iw", "ps", "sd", "ug", "ur", "yi"];

/** A node, and the way to change it. */
export class LineView {
  readonly line: CaptionLine;
  readonly node = newElement("div", "line");
  readonly #time = newElement("time", "time");
  readonly #label = newElement("bdi", "label");
  readonly #original = newElement("p", "original");
  readonly #text = newElement("span", "text");
  readonly #changing = newElement("span", "changing");
  readonly #translation = newElement("p", "translation");
  readonly #translated = newElement("span", "text");

  constructor(line: CaptionLine) {
    this.line = line;
    this.#text.append(newElement("span", "settled"), this.#changing);
    this.node.append(this.#original, this.#translation);
  }

  /** Shows the present state of the line. `isOverdue`: a translation that is missing will hardly come any more. */
  update(options: LineOptions, isOverdue: boolean): void {
    const { line } = this;
    const { language } = options;
    const translation = options.show === "original" || language === undefined ? undefined : line.translation(language);
    const isTranslated = translation !== undefined;
    const waits = options.show === "translation" && language !== undefined && !isTranslated && !isOverdue;
    const isOriginal = line.gap !== undefined || (isTranslated ? options.show === "both" : !waits);
    const [settled] = this.#text.children;
    if (settled !== undefined) {
      settled.textContent = line.gap === undefined ? line.text : options.gap.replace("{time}", clock(line.gap[1]));
    }
    this.#changing.textContent = line.changing;
    this.#text.classList.toggle("cut", line.isCut);
    this.#translated.textContent = translation?.trimStart() ?? "";
    setLanguage(this.#original, line.language);
    setLanguage(this.#translation, language);
    this.#original.replaceChildren(...(isOriginal ? this.#head(options) : []), this.#text);
    this.#translation.replaceChildren(...(isOriginal ? [] : this.#head(options)), this.#translated);
    this.#original.hidden = !isOriginal;
    this.#translation.hidden = !isTranslated;
    this.node.hidden = !isTranslated && (!isOriginal || this.#text.textContent === "");
  }

  /** What stands before the text. */
  #head(options: LineOptions): (Node | string)[] {
    const label = labelOf(this.line, options.labels);
    this.#time.textContent = clock(this.line.start_s);
    this.#label.textContent = `${label}:`;
    const hasLabel = label !== undefined && this.line.gap === undefined;
    return [...(options.hasTimes ? [this.#time, " "] : []), ...(hasLabel ? [this.#label, " "] : [])];
  }
}

/** What stands before the text of a line: the page's label of its channel, if that is not empty, or its speaker. */
export function labelOf(line: CaptionLine, labels: readonly string[]): string | undefined {
  return labels[line.channel] || line.speaker;
}

/** Marks text with its language, for voices and fonts, and with its direction. */
export function setLanguage(node: HTMLElement, language: string | undefined): void {
  if (language === undefined) {
    node.removeAttribute("lang");
  } else {
    node.lang = language;
  }
  node.dir = RIGHT_TO_LEFT.includes(language?.split("-")[0] ?? "") ? "rtl" : "auto";
}

/** A new element whose class is also its part. */
export function newElement<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  part: string,
): HTMLElementTagNameMap[Name] {
  const node = document.createElement(name);
  node.className = part;
  node.setAttribute("part", part);
  return node;
}
