import { LineView, newElement } from "./line_view.js";
const MAX_LINES = 400;
const STEP = 100;
const NEAR_PX = 400;
const FOLLOW_PX = 64;
const END_PX = 2;
export const OVERDUE_LINES = 2;
export class LineList {
    #finals;
    #openBox;
    #transcript;
    #onFollowing;
    #sizes;
    #options;
    #rows;
    #shown;
    #open;
    #isFollowing;
    #scrolledPx;
    #widthPx;
    constructor(transcript, options, onFollowing) {
        this.scroller = newElement("div", "scroller");
        this.#finals = newElement("div", "finals");
        this.#openBox = newElement("div", "open");
        this.#sizes = new ResizeObserver(() => this.#onResize());
        this.#shown = [];
        this.#open = new Map();
        this.#isFollowing = true;
        this.#scrolledPx = 0;
        this.#widthPx = 0;
        this.#transcript = transcript;
        this.#options = options;
        this.#onFollowing = onFollowing;
        const content = newElement("div", "content");
        this.#openBox.setAttribute("aria-hidden", "true");
        content.append(this.#finals, this.#openBox);
        this.scroller.append(content);
        this.scroller.addEventListener("scroll", () => this.#onScroll());
        this.#sizes.observe(this.scroller);
        this.#sizes.observe(content);
    }
    get #first() {
        return this.#shown[0]?.line.index ?? this.#transcript.end;
    }
    get #end() {
        return (this.#shown.at(-1)?.line.index ?? this.#transcript.end - 1) + 1;
    }
    render(options, rows) {
        this.#options = options;
        this.#rows = rows;
        const { scroller } = this;
        const isScrolling = rows === undefined;
        setAttributes(scroller, { tabindex: "0", role: "region", "aria-label": "Captions" }, isScrolling);
        setAttributes(scroller, { "aria-hidden": "true" }, !isScrolling);
        scroller.style.setProperty("--_lines", String(rows ?? 0));
        this.#showNewest();
    }
    update({ line, kind }) {
        if (kind === "final") {
            this.#addFinal(line);
        }
        else if (kind === "removed" && this.#open.has(line)) {
            this.#takeOpen(line)?.node.remove();
        }
        else if (kind !== "open") {
            this.#refresh(this.#open.get(line) ?? this.#shown.find((view) => view.line === line));
        }
        else if (this.#open.has(line)) {
            this.#refresh(this.#open.get(line));
        }
        else {
            this.#addOpen(line);
        }
    }
    follow() {
        this.#setFollowing(true);
        if (this.#end < this.#transcript.end) {
            this.#showNewest();
        }
        this.#stayAtEnd();
    }
    #showNewest() {
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
    get #nRowLines() {
        return (this.#rows ?? 0) + OVERDUE_LINES + 1;
    }
    #addOpen(line) {
        const view = this.#newView(line);
        this.#open.set(line, view);
        this.#openBox.append(view.node);
    }
    #addFinal(line) {
        const view = this.#takeOpen(line) ?? this.#newView(line);
        if (this.#shown.length > 0 && (this.#end !== line.index || this.#shown.length >= MAX_LINES)) {
            view.node.remove();
            this.#openBox.hidden = true;
            return;
        }
        if (view.node.nextElementSibling === null) {
            view.node.style.minHeight = "";
        }
        this.#shown.push(view);
        this.#finals.append(view.node);
        this.#refresh(view);
        this.#refresh(this.#shown.at(-1 - OVERDUE_LINES));
        if (this.#rows !== undefined) {
            this.#dropFirst(this.#shown.length - this.#nRowLines);
        }
        else if (this.#isFollowing && this.#shown.length > 2 * STEP) {
            this.#dropFirst(STEP);
        }
    }
    #takeOpen(line) {
        const view = this.#open.get(line);
        this.#open.delete(line);
        return view;
    }
    #newView(line) {
        const view = new LineView(line);
        this.#refresh(view);
        return view;
    }
    #refresh(view) {
        const index = view?.line.index ?? -1;
        view?.update(this.#options, index >= 0 && index + OVERDUE_LINES < this.#transcript.end);
    }
    #views(from, to) {
        const views = [];
        for (let index = Math.max(from, this.#transcript.first); index < to; index++) {
            const line = this.#transcript.at(index);
            if (line !== undefined) {
                views.push(this.#newView(line));
            }
        }
        return views;
    }
    #dropFirst(n) {
        for (const view of this.#shown.splice(0, Math.max(0, n))) {
            view.node.remove();
        }
    }
    #onScroll() {
        const { scrollHeight, scrollTop, clientHeight } = this.scroller;
        const belowPx = scrollHeight - scrollTop - clientHeight;
        const hasNewest = this.#end === this.#transcript.end;
        if (belowPx < END_PX && hasNewest) {
            this.#setFollowing(true);
        }
        else if (scrollTop !== this.#scrolledPx) {
            this.#setFollowing(hasNewest && scrollTop > this.#scrolledPx && belowPx < FOLLOW_PX);
        }
        if (!this.#isFollowing && scrollTop < NEAR_PX) {
            this.#bringInOlder();
        }
        else if (!this.#isFollowing && belowPx < NEAR_PX) {
            this.#bringInNewer();
        }
        this.#scrolledPx = this.scroller.scrollTop;
    }
    #bringInOlder() {
        const views = this.#views(this.#first - STEP, this.#first);
        this.#keepPlace(() => this.#finals.prepend(...views.map((view) => view.node)));
        this.#shown.unshift(...views);
        for (const view of this.#shown.splice(MAX_LINES)) {
            view.node.remove();
            this.#openBox.hidden = true;
        }
    }
    #bringInNewer() {
        const { end } = this.#transcript;
        const views = this.#views(this.#end, Math.min(end, this.#end + STEP));
        this.#finals.append(...views.map((view) => view.node));
        this.#shown.push(...views);
        this.#openBox.hidden = this.#end < end;
        this.#keepPlace(() => this.#dropFirst(this.#shown.length - MAX_LINES));
    }
    #keepPlace(change) {
        const { scrollHeight, scrollTop } = this.scroller;
        change();
        this.scroller.scrollTop = scrollTop + this.scroller.scrollHeight - scrollHeight;
    }
    #onResize() {
        const open = [...this.#open.values()].map((view) => view.node);
        const widthPx = this.scroller.clientWidth;
        if (widthPx !== this.#widthPx) {
            this.#widthPx = widthPx;
            for (const node of [...this.#shown.map((view) => view.node), ...open]) {
                node.style.minHeight = "";
            }
        }
        else {
            const heights = open.map((node) => node.getBoundingClientRect().height);
            open.forEach((node, index) => {
                node.style.minHeight = `${heights[index]}px`;
            });
        }
        this.#stayAtEnd();
    }
    #stayAtEnd() {
        if (this.#isFollowing) {
            this.scroller.scrollTop = this.scroller.scrollHeight;
            this.#scrolledPx = this.scroller.scrollTop;
        }
    }
    #setFollowing(isFollowing) {
        if (isFollowing) {
            this.#openBox.hidden = false;
        }
        if (isFollowing !== this.#isFollowing) {
            this.#isFollowing = isFollowing;
            this.#onFollowing(isFollowing);
        }
    }
}
function setAttributes(node, attributes, isSet) {
    for (const [name, value] of Object.entries(attributes)) {
        if (isSet) {
            node.setAttribute(name, value);
        }
        else {
            node.removeAttribute(name);
        }
    }
}
