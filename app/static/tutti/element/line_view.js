import { clock } from "../clock.js";
const RIGHT_TO_LEFT = ["ar", "ckb", "dv", "fa", "he", "iw", "ps", "sd", "ug", "ur", "yi"];
export class LineView {
    #time;
    #label;
    #original;
    #text;
    #changing;
    #translation;
    #translated;
    constructor(line) {
        this.node = newElement("div", "line");
        this.#time = newElement("time", "time");
        this.#label = newElement("bdi", "label");
        this.#original = newElement("p", "original");
        this.#text = newElement("span", "text");
        this.#changing = newElement("span", "changing");
        this.#translation = newElement("p", "translation");
        this.#translated = newElement("span", "text");
        this.line = line;
        this.#text.append(newElement("span", "settled"), this.#changing);
        this.node.append(this.#original, this.#translation);
    }
    update(options, isOverdue) {
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
    #head(options) {
        const label = labelOf(this.line, options.labels);
        this.#time.textContent = clock(this.line.start_s);
        this.#label.textContent = `${label}:`;
        const hasLabel = label !== undefined && this.line.gap === undefined;
        return [...(options.hasTimes ? [this.#time, " "] : []), ...(hasLabel ? [this.#label, " "] : [])];
    }
}
export function labelOf(line, labels) {
    return labels[line.channel] || line.speaker;
}
export function setLanguage(node, language) {
    if (language === undefined) {
        node.removeAttribute("lang");
    }
    else {
        node.lang = language;
    }
    node.dir = RIGHT_TO_LEFT.includes(language?.split("-")[0] ?? "") ? "rtl" : "auto";
}
export function newElement(name, part) {
    const node = document.createElement(name);
    node.className = part;
    node.setAttribute("part", part);
    return node;
}
