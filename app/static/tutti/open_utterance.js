import { align, followsWords } from "./align.js";
export class OpenUtterance {
    #nHidden;
    #final;
    #shown;
    #words;
    #segments;
    #kept;
    #theirFinal;
    #joint;
    constructor(number, channel, atS, hidden, label, words) {
        this.isWaiting = false;
        this.#segments = [];
        this.#kept = "";
        this.#theirFinal = "";
        this.number = number;
        this.channel = channel;
        this.atS = this.shownUntilS = atS;
        this.label = label;
        this.#nHidden = hidden.length;
        this.#words = words;
        this.#final = this.#shown = hidden;
        this.#joint = hidden === "" ? { ours: "", nTheirs: 0 } : undefined;
    }
    get endS() {
        return this.#segments.length === 0 ? this.atS : Math.max(...this.#segments.map(({ segment }) => segment.end_s));
    }
    get isWhole() {
        return this.#joint?.ours === "" && this.#joint.nTheirs === 0;
    }
    get hasText() {
        return this.#shown.length > this.#nHidden;
    }
    get text() {
        return this.#nHidden > 0 ? this.#final.slice(this.#nHidden).trimStart() : this.#final;
    }
    get unrepeated() {
        return this.#joint === undefined ? this.#repeatable.slice(align(this.#repeatable, this.#theirFinal)[0]) : "";
    }
    get #repeatable() {
        return this.#shown.slice(this.#kept.length);
    }
    waitForCounterpart(fromS) {
        this.isWaiting = true;
        const kept = this.#segments.filter(({ segment }) => segment.start_s < fromS).map(({ final }) => final);
        this.#kept = kept.reduce((longest, final) => (final.length > longest.length ? final : longest), "");
        this.#theirFinal = "";
        this.#joint = undefined;
    }
    textWith(theirs) {
        if (this.isWhole) {
            return theirs;
        }
        const { ours, nTheirs } = this.#joint ?? {
            ours: this.#shown + this.#separator(theirs),
            nTheirs: align(this.#repeatable, theirs)[1],
        };
        const text = theirs.length > nTheirs ? ours + theirs.slice(nTheirs) : this.#shown;
        return this.#nHidden > 0 ? text.slice(this.#nHidden).trimStart() : text;
    }
    addSegment(event) {
        this.#theirFinal += event.text;
        const nBefore = this.#final.length;
        this.#final = this.#ours(this.#theirFinal);
        if (!this.#shown.startsWith(this.#final)) {
            this.#shown = this.#final;
        }
        let text = this.#final.slice(nBefore);
        if (text === "" && event.text !== "") {
            return undefined;
        }
        if (this.#isHiddenBefore(nBefore)) {
            text = text.trimStart();
        }
        const isTheirs = text === event.text;
        const startS = isTheirs ? event.start_s : Math.min(Math.max(event.start_s, this.endS), event.end_s);
        const words = this.#words?.finish(text, event, startS) ?? event.words;
        return this.#keep({ ...event, utterance: this.number, start_s: startS, text, words });
    }
    addInterim(event) {
        const stable = this.#theirFinal + event.stable;
        const ours = this.#ours(stable);
        if (this.#joint !== undefined) {
            this.#shown = this.isWhole || ours.length >= this.#shown.length ? ours : this.#shown;
            this.shownUntilS = event.end_s;
            return this.#interim(event, event.tail);
        }
        const theirs = stable + event.tail;
        const [nOurs, nTheirs] = align(this.#repeatable, theirs);
        if (nOurs < this.#repeatable.length || nTheirs === theirs.length) {
            return undefined;
        }
        this.shownUntilS = event.end_s;
        return this.#interim(event, this.#separator(theirs) + theirs.slice(nTheirs));
    }
    popRest() {
        let text = this.#shown.slice(this.#final.length);
        if (text === "" || this.isWhole) {
            return undefined;
        }
        if (this.#isHiddenBefore(this.#final.length)) {
            text = text.trimStart();
        }
        const startS = this.endS;
        const last = this.#segments.at(-1)?.segment;
        this.#final = this.#shown;
        return this.#keep({
            type: "segment",
            utterance: this.number,
            id: 0,
            channel: this.channel,
            start_s: startS,
            end_s: Math.max(this.shownUntilS, startS),
            text,
            words: [],
            confidence: last?.confidence ?? 0,
            language: last?.language ?? null,
            ...this.label,
        });
    }
    #interim(event, tail) {
        const stable = this.#shown.slice(this.#final.length);
        const { stable_words = [], ...rest } = event;
        const words = this.#words?.show(stable, stable_words, this.isWhole);
        const shown = { ...rest, utterance: this.number, stable, tail, ...words };
        if (!this.#isHiddenBefore(this.#final.length)) {
            return shown;
        }
        return { ...shown, stable: stable.trimStart(), tail: stable.trim() === "" ? tail.trimStart() : tail };
    }
    #isHiddenBefore(nChars) {
        return nChars > 0 && nChars === this.#nHidden;
    }
    #keep(segment) {
        this.#segments.push({ segment, final: this.#final });
        return segment;
    }
    #ours(theirs) {
        const nKept = this.#kept.length;
        if (this.#joint === undefined) {
            const [nOurs, nTheirs] = align(this.#repeatable, theirs);
            if (nKept + nOurs < this.#shown.length || nTheirs === theirs.length) {
                return this.#shown.slice(0, Math.max(nKept + nOurs, this.#final.length));
            }
            this.#joint = { ours: this.#shown + this.#separator(theirs), nTheirs };
        }
        const { ours, nTheirs } = this.#joint;
        if (theirs.length >= nTheirs) {
            return ours + theirs.slice(nTheirs);
        }
        return ours.slice(0, Math.max(nKept + align(ours.slice(nKept), theirs)[0], this.#final.length));
    }
    #separator(theirs) {
        return this.#kept !== "" && this.#shown === this.#kept && !followsWords(theirs) ? " " : "";
    }
}
