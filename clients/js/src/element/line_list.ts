/**
 * The lines of a transcript in a box that scrolls, or that shows the last few rows only. It follows the newest text until
 * the reader scrolls up. The document has a few hundred lines at most; others come in when the reader scrolls to them.
 */

import { type LineOptions, LineView, newElement } from "./line_view.js";
import type { CaptionLine, Change, Transcript } from "./transcript.js";

/** The most final lines in the document. */
const MAX_LINES = 400;
/** How many lines come in at once. While the newest text is followed, this many to twice as many are in the document. */
const STEP = 100;
/** Lines come in when the reader is this close to where they are missing. */
const NEAR_PX = 400;
/** When the reader scrolls down to within this distance of the end, the newest text is followed again. */
const FOLLOW_PX = 64;
/** Browsers round heights: a position closer than this is the end. */
const END_PX = 2;
/** A line without its translation shows the original when this many newer lines are final. */
export const OVERDUE_LINES = 2;

/** The lines of one element. */
export class LineList {
  readonly scroller = newElement("div", "scroller");
  readonly #finals = newElement("div", "finals");
  readonly #openBox = newElement("div", "open");
  readonly #transcript: Transcript;
  readonly #onFollowing: (isFollowing: boolean) => void;
  readonly #sizes = new ResizeObserver(() => this.#onResize());
  #options: LineOptions;
  /** How many rows are shown; undefined: all lines, which scroll. */
  #rows: number | undefined;
  /** The final lines in the document: consecutive ones. */
  #shown: LineView[] = [];
  readonly #open = new Map<CaptionLine, LineView>();
  #isFollowing = true;
  #scrolledPx = 0;
  #widthPx = 0;

  constructor(transcript: Transcript, options: LineOptions, onFollowing: (isFollowing: boolean) => void) {
    this.#transcript = transcript;
    this.#options = options;
    this.#onFollowing = onFollowing;
    const content = newElement("div", "content");
    // Text that changes several times a second is not for screen readers: they get the final text, once.
    this.#openBox.setAttribute("aria-hidden", "true");
    content.append(this.#finals, this.#openBox);
    this.scroller.append(content);
    this.scroller.addEventListener("scroll", () => this.#onScroll());
    this.#sizes.observe(this.scroller);
    this.#sizes.observe(content);
  }

  /** The index of the first final line in the document. */
  get #first(): number {
    return this.#shown[0]?.line.index ?? this.#transcript.end;
  }

  /** The index after that of the last final line in the document. */
  get #end(): number {
    return (this.#shown.at(-1)?.line.index ?? this.#transcript.end - 1) + 1;
  }

  /** Shows all lines anew. */
  render(options: LineOptions, rows: number | undefined): void {
    this.#options = options;
    this.#rows = rows;
    const { scroller } = this;
    const isScrolling = rows === undefined;
    setAttributes(scroller, { tabindex: "0", role: "region", "aria-label": "Captions" }, isScrolling);
    // The first row may begin in the middle of a sentence. Screen readers get the text from the live region.
    setAttributes(scroller, { "aria-hidden": "true" }, !isScrolling);
    // The attribute may be there with a value that is no number of rows.
    scroller.classList.toggle("rows", !isScrolling);
    scroller.style.setProperty("--_lines", String(rows ?? 0));
    this.#showNewest();
  }

  /** Shows a change of the transcript. */
  update({ line, kind }: Change): void {
    if (kind === "final") {
      this.#addFinal(line);
    } else if (kind === "removed" && this.#open.has(line)) {
      this.#takeOpen(line)?.node.remove();
    } else if (kind !== "open") {
      this.#refresh(this.#open.get(line) ?? this.#shown.find((view) => view.line === line));
    } else if (this.#open.has(line)) {
      this.#refresh(this.#open.get(line));
    } else {
      this.#addOpen(line);
    }
  }

  /** Goes to the newest text and stays there. */
  follow(): void {
    this.#setFollowing(true);
    if (this.#end < this.#transcript.end) {
      this.#showNewest();
    }
    this.#stayAtEnd();
  }

  #showNewest(): void {
    const { end } = this.#transcript;
    this.#finals.replaceChildren();
    this.#openBox.replaceChildren();
    this.#open.clear();
    this.#shown = this.#views(end - (this.#rows === undefined ? STEP : this.#nRowLines), end);
    this.#finals.append(...this.#shown.map((view) => view.node));
    this.#transcript.open.forEach((line) => this.#addOpen(line));
    this.#setFollowing(true);
    this.#stayAtEnd();
  }

  /** How many lines fill the rows, with those that wait for their translation. */
  get #nRowLines(): number {
    return (this.#rows ?? 0) + OVERDUE_LINES + 1;
  }

  #addOpen(line: CaptionLine): void {
    const view = this.#newView(line);
    this.#open.set(line, view);
    this.#openBox.append(view.node);
  }

  #addFinal(line: CaptionLine): void {
    const view = this.#takeOpen(line) ?? this.#newView(line);
    // A reader who is far from the end gets the line when the scrolling comes near to it.
    if (this.#shown.length > 0 && (this.#end !== line.index || this.#shown.length >= MAX_LINES)) {
      view.node.remove();
      this.#openBox.hidden = true;
      return;
    }
    if (view.node.nextElementSibling === null) {
      // The final text may be shorter. That moves something only where a line is below.
      view.node.style.minHeight = "";
    }
    this.#shown.push(view);
    this.#finals.append(view.node);
    this.#refresh(view);
    this.#refresh(this.#shown.at(-1 - OVERDUE_LINES));
    if (this.#rows !== undefined) {
      this.#dropFirst(this.#shown.length - this.#nRowLines);
    } else if (this.#isFollowing && this.#shown.length > 2 * STEP) {
      this.#dropFirst(STEP);
    }
  }

  #takeOpen(line: CaptionLine): LineView | undefined {
    const view = this.#open.get(line);
    this.#open.delete(line);
    return view;
  }

  #newView(line: CaptionLine): LineView {
    const view = new LineView(line);
    this.#refresh(view);
    return view;
  }

  #refresh(view: LineView | undefined): void {
    const index = view?.line.index ?? -1;
    view?.update(this.#options, index >= 0 && index + OVERDUE_LINES < this.#transcript.end);
  }

  /** New views of the final lines from one index to before another, as far as there are any. */
  #views(from: number, to: number): LineView[] {
    const views = [];
    for (let index = Math.max(from, this.#transcript.first); index < to; index++) {
      const line = this.#transcript.at(index);
      if (line !== undefined) {
        views.push(this.#newView(line));
      }
    }
    return views;
  }

  #dropFirst(n: number): void {
    for (const view of this.#shown.splice(0, Math.max(0, n))) {
      view.node.remove();
    }
  }

  #onScroll(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    const belowPx = scrollHeight - scrollTop - clientHeight;
    const hasNewest = this.#end === this.#transcript.end;
    if (belowPx < END_PX && hasNewest) {
      this.#setFollowing(true);
    } else if (scrollTop !== this.#scrolledPx) {
      this.#setFollowing(hasNewest && scrollTop > this.#scrolledPx && belowPx < FOLLOW_PX);
    }
    if (!this.#isFollowing && scrollTop < NEAR_PX) {
      this.#bringInOlder();
    } else if (!this.#isFollowing && belowPx < NEAR_PX) {
      this.#bringInNewer();
    }
    this.#scrolledPx = this.scroller.scrollTop;
  }

  #bringInOlder(): void {
    const views = this.#views(this.#first - STEP, this.#first);
    this.#keepPlace(() => this.#finals.prepend(...views.map((view) => view.node)));
    this.#shown.unshift(...views);
    for (const view of this.#shown.splice(MAX_LINES)) {
      view.node.remove();
      this.#openBox.hidden = true;
    }
  }

  #bringInNewer(): void {
    const { end } = this.#transcript;
    const views = this.#views(this.#end, Math.min(end, this.#end + STEP));
    this.#finals.append(...views.map((view) => view.node));
    this.#shown.push(...views);
    this.#openBox.hidden = this.#end < end;
    this.#keepPlace(() => this.#dropFirst(this.#shown.length - MAX_LINES));
  }

  /** Changes the document above what the reader sees, and nothing moves. */
  #keepPlace(change: () => void): void {
    const { scrollHeight, scrollTop } = this.scroller;
    change();
    this.scroller.scrollTop = scrollTop + this.scroller.scrollHeight - scrollHeight;
  }

  /**
   * The browser calls this in each frame in which the box or its content has another size, before it draws. Events only
   * change the document: a room's history would take long if the browser had to lay it out after each one.
   */
  #onResize(): void {
    const open = [...this.#open.values()].map((view) => view.node);
    const widthPx = this.scroller.clientWidth;
    if (widthPx !== this.#widthPx) {
      this.#widthPx = widthPx;
      for (const node of [...this.#shown.map((view) => view.node), ...open]) {
        node.style.minHeight = "";
      }
    } else {
      // A line never gets lower, even when its end changes to a shorter text. Otherwise the lines below it would jump.
      const heights = open.map((node) => node.getBoundingClientRect().height);
      open.forEach((node, index) => {
        node.style.minHeight = `${heights[index]}px`;
      });
    }
    this.#stayAtEnd();
  }

  #stayAtEnd(): void {
    if (this.#isFollowing) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
      this.#scrolledPx = this.scroller.scrollTop;
    }
  }

  #setFollowing(isFollowing: boolean): void {
    if (isFollowing) {
      this.#openBox.hidden = false;
    }
    if (isFollowing !== this.#isFollowing) {
      this.#isFollowing = isFollowing;
      this.#onFollowing(isFollowing);
    }
  }
}

function setAttributes(node: Element, attributes: Readonly<Record<string, string>>, isSet: boolean): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (isSet) {
      node.setAttribute(name, value);
    } else {
      node.removeAttribute(name);
    }
  }
}
