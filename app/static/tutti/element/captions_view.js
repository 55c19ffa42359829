import { LineList, OVERDUE_LINES } from "./line_list.js";
import { labelOf, newElement, setLanguage } from "./line_view.js";
import { adoptStyle } from "./style.js";
const MAX_SPOKEN = 4;
export class CaptionsView {
    #transcript;
    #list;
    #options;
    #shadow;
    #root = newElement("div", "root");
    #status = newElement("div", "status");
    #empty = document.createElement("slot");
    #latest = newElement("button", "latest");
    #spoken = newElement("div", "spoken");
    #silence;
    constructor(shadow, transcript, options) {
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
    adoptStyle() {
        adoptStyle(this.#shadow);
    }
    render(options) {
        this.#options = options;
        this.#root.style.fontSize = options.sizePx === undefined ? "" : `${options.sizePx}px`;
        this.#latest.textContent = options.latest;
        this.#showEmpty();
        this.#list.render(options, options.rows);
        this.#waitForSilence();
    }
    update(changes, isSpoken) {
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
        if (changes.some(({ kind }) => kind !== "removed" && kind !== "labelled")) {
            this.#waitForSilence();
        }
    }
    clear() {
        this.#spoken.replaceChildren();
        this.render(this.#options);
    }
    showStatus(text) {
        this.#status.textContent = text;
        this.#status.hidden = text === "";
    }
    #showEmpty() {
        const isEmpty = this.#transcript.end === this.#transcript.first && this.#transcript.open.length === 0;
        this.#empty.hidden = !isEmpty;
    }
    #speakChange({ line, kind, spoken, language }) {
        const { show, language: wanted } = this.#options;
        if (show === "original" || wanted === undefined) {
            if (kind !== "translated" && kind !== "labelled") {
                this.#speak(spoken, language, line);
            }
        }
        else if (kind === "translated" && language === wanted) {
            this.#speak(spoken, language, line);
        }
        else if (kind === "final") {
            const overdue = this.#transcript.at(line.index - OVERDUE_LINES);
            if (overdue !== undefined && overdue.translation(wanted) === undefined) {
                this.#speak(overdue.text, overdue.language, overdue);
            }
        }
    }
    #speak(text, language, line) {
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
    #waitForSilence() {
        clearTimeout(this.#silence);
        this.#list.scroller.classList.remove("silent");
        if (this.#options.clearAfterS !== undefined) {
            const hide = () => this.#list.scroller.classList.add("silent");
            this.#silence = setTimeout(hide, this.#options.clearAfterS * 1000);
        }
    }
}
