/**
 * All that the element shows: the lines, what it waits for, the way back to the newest text, and what is spoken by screen
 * readers: each final text once.
 */

import { LONGEST_MS } from "../clock.js";
import { LineList, OVERDUE_LINES } from "./line_list.js";
import { labelOf, type LineOptions, newElement, setLanguage } from "./line_view.js";
import { adoptStyle } from "./style.js";
import type { CaptionLine, Change, Transcript } from "./transcript.js";

/** How many texts stay in the live region. A reader who looks through the page finds few of them a second time. */
const MAX_SPOKEN = 4;

/** How captions are shown. */
export interface ViewOptions extends LineOptions {
  /** The last rows alone are shown; undefined: all lines, which scroll. */
  readonly rows: number | undefined;
  /** The size of the text in CSS pixels; undefined: that of the page. */
  readonly sizePx: number | undefined;
  /** Captions are hidden when nothing was said for this time; undefined: they stay. */
  readonly clearAfterS: number | undefined;
  /** The text of the button that goes to the newest text. */
  readonly latest: string;
}

/** The content of a shadow root. */
export class CaptionsView {
  readonly #transcript: Transcript;
  readonly #list: LineList;
  #options: ViewOptions;
  readonly #shadow: ShadowRoot;
  readonly #root = newElement("div", "root");
  readonly #status = newElement("div", "status");
  /** What the page has put into the element is shown until there is a line. */
  readonly #empty = document.createElement("slot");
  readonly #latest = newElement("button", "latest");
  readonly #spoken = newElement("div", "spoken");
  #silence: ReturnType<typeof setTimeout> | undefined;

  constructor(shadow: ShadowRoot, transcript: Transcript, options: ViewOptions) {
    this.#shadow = shadow;
    this.#transcript = transcript;
    this.#options = options;
    this.#list = new LineList(transcript, options, (isFollowing) => {
      this.#latest.hidden = isFollowing;
    });
    this.#status.setAttribute("role", "status");
    this.#latest.type = "button";
    this.#latest.hidden = true;
    this.#latest.addEventListener("click", () => {
      this.#list.follow();
      this.#list.scroller.focus();
    });
    this.#spoken.setAttribute("role", "log");
    this.#spoken.setAttribute("aria-live", "polite");
    this.#root.append(this.#status, this.#empty, this.#list.scroller, this.#latest, this.#spoken);
    this.adoptStyle();
    shadow.append(this.#root);
    this.render(options);
  }

  /** Takes the style of the document that the element is in. */
  adoptStyle(): void {
    adoptStyle(this.#shadow);
  }

  /** Shows everything anew. */
  render(options: ViewOptions): void {
    this.#options = options;
    this.#root.style.fontSize = options.sizePx === undefined ? "" : `${options.sizePx}px`;
    this.#latest.textContent = options.latest;
    this.#showEmpty();
    this.#list.render(options, options.rows);
    this.#waitForSilence();
  }

  /** Shows changes of the transcript. `isSpoken`: screen readers read aloud what has become final with them. */
  update(changes: readonly Change[], isSpoken: boolean): void {
    if (changes.length === 0) {
      return;
    }
    this.#showEmpty();
    for (const change of changes) {
      this.#list.update(change);
      if (isSpoken) {
        this.#speakChange(change);
      }
    }
    // A line that goes, such as that of a cough, or has another speaker, shows no word that is new.
    if (changes.some(({ kind }) => kind !== "removed" && kind !== "labelled")) {
      this.#waitForSilence();
    }
  }

  /** Removes what was spoken, after the transcript was cleared, and shows the rest. */
  clear(): void {
    this.#spoken.replaceChildren();
    this.render(this.#options);
  }

  /** Says what the element waits for; an empty text says nothing. */
  showStatus(text: string): void {
    this.#status.textContent = text;
    this.#status.hidden = text === "";
  }

  #showEmpty(): void {
    const isEmpty = this.#transcript.end === this.#transcript.first && this.#transcript.open.length === 0;
    this.#empty.hidden = !isEmpty;
  }

  /** A reader of a translation hears the translation, or the original of what was not translated. */
  #speakChange({ line, kind, spoken, language }: Change): void {
    const { show, language: wanted } = this.#options;
    if (show === "original" || wanted === undefined) {
      if (kind !== "translated" && kind !== "labelled") {
        this.#speak(spoken, language, line);
      }
    } else if (kind === "translated" && language === wanted) {
      this.#speak(spoken, language, line);
    } else if (kind === "final") {
      const overdue = this.#transcript.at(line.index - OVERDUE_LINES);
      if (overdue !== undefined && overdue.translation(wanted) === undefined) {
        this.#speak(overdue.text, overdue.language, overdue);
      }
    }
  }

  #speak(text: string, language: string | undefined, line: CaptionLine): void {
    if (text.trim() === "") {
      return;
    }
    const node = document.createElement("p");
    const label = labelOf(line, this.#options.labels);
    node.textContent = label === undefined ? text.trim() : `${label}: ${text.trim()}`;
    setLanguage(node, language);
    this.#spoken.append(node);
    while (this.#spoken.childElementCount > MAX_SPOKEN) {
      this.#spoken.firstElementChild?.remove();
    }
  }

  #waitForSilence(): void {
    clearTimeout(this.#silence);
    this.#list.scroller.classList.remove("silent");
    if (this.#options.clearAfterS !== undefined) {
      const hide = () => this.#list.scroller.classList.add("silent");
      this.#silence = setTimeout(hide, Math.min(this.#options.clearAfterS * 1000, LONGEST_MS));
    }
  }
}
