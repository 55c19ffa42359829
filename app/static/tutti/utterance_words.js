export class UtteranceWords {
    #shown = [];
    finish(text, segment, startS) {
        this.#shown = wordsAfter(this.#shown, text);
        return timedWords(text, segment, startS);
    }
    show(stable, theirs, isWhole) {
        this.#shown = isWhole ? theirs : growWords(this.#shown, stable, theirs);
        return this.#shown.length === 0 ? {} : { stable_words: this.#shown };
    }
}
function growWords(shown, stable, theirs) {
    const all = withoutSpaces(stable);
    const before = charactersOf(shown);
    let missing = all.startsWith(before) ? all.slice(before.length) : all;
    let kept = shown;
    const added = [];
    for (const word of [...theirs].reverse()) {
        const characters = charactersOf([word]);
        const last = kept.at(-1);
        if (missing === "" || !(missing.endsWith(characters) || characters.endsWith(missing))) {
            break;
        }
        if (characters.length > missing.length && last !== undefined) {
            kept = [...kept.slice(0, -1), { ...last, word: last.word + missing }];
        }
        else {
            added.unshift(word);
        }
        missing = missing.slice(0, Math.max(missing.length - characters.length, 0));
    }
    if (missing !== "") {
        return kept;
    }
    const sinceS = kept.at(-1)?.end_s ?? 0;
    const notBefore = (timeS) => Math.max(timeS, sinceS);
    return [
        ...kept,
        ...added.map((word) => ({ ...word, start_s: notBefore(word.start_s), end_s: notBefore(word.end_s) })),
    ];
}
function wordsAfter(shown, text) {
    let nLetters = countLetters(text);
    const first = shown.findIndex(({ word }) => {
        const isLeft = nLetters <= 0;
        nLetters -= countLetters(word);
        return isLeft;
    });
    return first < 0 ? [] : shown.slice(first);
}
const countLetters = (text) => text.match(/[\p{L}\p{N}]/gu)?.length ?? 0;
const withoutSpaces = (text) => text.replaceAll(/\s/gu, "");
const charactersOf = (words) => words.map(({ word }) => withoutSpaces(word)).join("");
function timedWords(text, event, startS) {
    if (text === event.text || event.words.length === 0) {
        return event.words;
    }
    const words = text.match(/\S+/g) ?? [];
    const last = words.length === 0 ? [] : event.words.slice(-words.length);
    if (event.text.endsWith(text) && last.map(({ word }) => word.trim()).join("") === words.join("")) {
        return last;
    }
    const timed = [];
    let nChars = words.join("").length;
    let fromS = startS;
    for (const word of words) {
        const untilS = fromS + ((event.end_s - fromS) * word.length) / nChars;
        nChars -= word.length;
        timed.push({ word, start_s: rounded(fromS), end_s: rounded(untilS), confidence: event.confidence });
        fromS = untilS;
    }
    return timed;
}
function rounded(timeS) {
    return Math.round(timeS * 1000) / 1000;
}
