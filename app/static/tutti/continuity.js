import { wordsOf } from "./align.js";
import { OpenUtterance } from "./open_utterance.js";
const SAME_START_S = 1;
export class Continuity {
    #resumeFromS;
    #languages = new Map();
    #detectorFromS;
    #isResumed = false;
    #beganS;
    #audioFromS;
    #open = [];
    #counterparts = new Map();
    #unrepeated = new Map();
    #nextNumber = 0;
    #nextSegmentId = 0;
    #nWords = 0;
    #speechS = 0;
    #eagerEnds;
    #makeWords;
    #labels;
    constructor(fromS, audioFromS, { translations, eagerEnds, makeWords }, channelNames) {
        this.translations = translations;
        this.#eagerEnds = eagerEnds;
        this.#makeWords = makeWords;
        this.#labels = channelNames?.map((speaker) => ({ speaker }));
        this.#resumeFromS = fromS;
        this.#detectorFromS = fromS.map(() => null);
        this.#beganS = this.#audioFromS = audioFromS;
    }
    get resumeFromS() {
        return this.#resumeFromS;
    }
    get languages() {
        return this.#resumeFromS.map((_, channel) => this.#languages.get(channel) ?? null);
    }
    get detectorFromS() {
        return this.#detectorFromS;
    }
    get finalUntilS() {
        return Math.min(...this.#resumeFromS);
    }
    resume(audioFromS, lostUntilS) {
        this.#isResumed = true;
        this.#audioFromS = audioFromS;
        this.#counterparts.clear();
        this.#unrepeated.clear();
        this.translations?.restart();
        const takenBack = this.#open.flatMap((utterance) => this.#eagerEnds?.takeBack(utterance) ?? []);
        for (const utterance of this.#open) {
            utterance.waitForCounterpart(timeOf(this.#resumeFromS, utterance.channel));
        }
        if (lostUntilS === undefined) {
            return takenBack;
        }
        const times = this.#resumeFromS;
        this.#detectorFromS = this.#detectorFromS.map((knownS, channel) => timeOf(times, channel) >= lostUntilS ? knownS : null);
        this.#resumeFromS = times.map((timeS) => Math.max(timeS, lostUntilS));
        const lost = this.#open.filter((utterance) => utterance.atS < lostUntilS);
        return [...takenBack, ...lost.flatMap((utterance) => this.#close(utterance, lostUntilS, true))];
    }
    receive(event) {
        switch (event.type) {
            case "speech_started":
                return this.#begin(event);
            case "interim": {
                const interim = this.#find(event, event.start_s).addInterim(event);
                return interim === undefined ? [] : [interim];
            }
            case "segment":
                return this.#deliver(this.#find(event, event.start_s).addSegment(event));
            case "translation": {
                const translation = this.translations?.receive(event);
                return translation === undefined ? [] : [translation];
            }
            case "turn":
                return [this.#turn(event)];
            case "utterance":
                return this.#end(event);
            case "stopped":
                return this.#stop(event);
            default:
                return [event];
        }
    }
    #begin(event) {
        const earlier = this.#open.filter(({ isWaiting, channel, atS }) => isWaiting && channel === event.channel && atS <= event.at_s + SAME_START_S);
        const [first] = earlier;
        if (first === undefined) {
            return [{ ...event, utterance: this.#announce(event, event.at_s).number }];
        }
        const distance = ({ atS }) => Math.abs(atS - event.at_s);
        const counterpart = earlier.reduce((best, each) => (distance(each) < distance(best) ? each : best), first);
        this.#counterparts.set(event.utterance, counterpart);
        this.translations?.noteNumber(event.utterance, counterpart.number);
        counterpart.isWaiting = false;
        const skipped = earlier.slice(0, earlier.indexOf(counterpart));
        return skipped.flatMap((utterance) => this.#close(utterance, event.at_s));
    }
    #announce({ utterance, channel }, atS) {
        const hidden = this.#unrepeated.get(channel) ?? "";
        const label = this.#labels?.[channel];
        const announced = new OpenUtterance(this.#nextNumber++, channel, atS, hidden, label, this.#makeWords?.());
        this.#unrepeated.delete(channel);
        this.#open.push(announced);
        this.#counterparts.set(utterance, announced);
        this.translations?.noteNumber(utterance, announced.number);
        return announced;
    }
    #find(event, startS) {
        return this.#counterparts.get(event.utterance) ?? this.#announce(event, startS);
    }
    #deliver(segment) {
        if (segment === undefined) {
            return [];
        }
        this.#nWords += wordsOf(segment.text).length;
        this.translations?.add(segment);
        return [{ ...segment, id: this.#nextSegmentId++ }];
    }
    #turn(event) {
        const utterance = this.#find(event, event.at_s);
        const text = event.text === null ? null : utterance.textWith(event.text);
        const turn = { ...event, utterance: utterance.number, text };
        this.#eagerEnds?.note(turn);
        return turn;
    }
    #end(event) {
        const utterance = this.#find(event, event.start_s);
        this.#counterparts.delete(event.utterance);
        if (event.language !== undefined) {
            this.#languages.set(event.channel, event.language);
        }
        const times = event.resume_from_s;
        const before = times.length === this.#resumeFromS.length ? this.#resumeFromS : [];
        const known = times.length === event.detector_from_s.length ? event.detector_from_s : [];
        const resumeFromS = times.map((timeS, index) => Math.max(timeS, before[index] ?? timeS));
        const detectorFromS = times.map((timeS, index) => (timeS === resumeFromS[index] ? known : this.#detectorFromS)[index] ?? null);
        const untilS = timeOf(resumeFromS, event.channel);
        const passed = this.#open.filter(({ isWaiting, channel, atS }) => isWaiting && channel === event.channel && atS + SAME_START_S < untilS);
        const closed = passed.flatMap((each) => this.#close(each, untilS));
        this.#resumeFromS = resumeFromS;
        this.#detectorFromS = detectorFromS;
        this.voices = event.voices ?? this.voices;
        this.translations?.forgetBefore(event.translated_until_s);
        const rest = utterance.unrepeated;
        if (rest !== "") {
            this.#unrepeated.set(event.channel, rest);
        }
        return [...closed, ...this.#finish(utterance, event)];
    }
    #close(utterance, untilS, isLost = false) {
        const endS = Math.max(utterance.endS, utterance.shownUntilS);
        const isUncovered = untilS > endS && (isLost || !utterance.hasText);
        return this.#finish(utterance, {
            type: "utterance",
            utterance: utterance.number,
            channel: utterance.channel,
            start_s: utterance.atS,
            end_s: endS,
            text: "",
            uncovered: isUncovered ? [[endS, untilS]] : [],
            final_until_s: this.finalUntilS,
            resume_from_s: this.#resumeFromS,
            detector_from_s: this.#detectorFromS,
            ...utterance.label,
        });
    }
    #finish(utterance, event) {
        this.#open = this.#open.filter((each) => each !== utterance);
        const rest = this.#deliver(utterance.popRest());
        this.#speechS += event.end_s - event.start_s;
        if (!this.#isResumed) {
            this.#eagerEnds?.takeBack(utterance);
            return [...rest, event];
        }
        const ended = {
            ...event,
            utterance: utterance.number,
            start_s: Math.min(event.start_s, utterance.atS),
            end_s: Math.max(event.end_s, utterance.endS),
            text: utterance.isWhole ? event.text : utterance.text,
            final_until_s: this.finalUntilS,
            resume_from_s: this.#resumeFromS,
            detector_from_s: this.#detectorFromS,
        };
        return [...rest, ...(this.#eagerEnds?.takeBack(utterance, ended.text) ?? []), ended];
    }
    #stop(event) {
        if (!this.#isResumed) {
            return [event];
        }
        const endS = this.#audioFromS + event.audio_s;
        const closed = this.#open.flatMap((utterance) => this.#close(utterance, endS));
        const totals = { audio_s: rounded(endS - this.#beganS), speech_s: rounded(this.#speechS), words: this.#nWords };
        return [...closed, { ...event, ...totals }];
    }
}
function timeOf(timesS, channel) {
    return timesS[Math.min(channel, timesS.length - 1)] ?? 0;
}
function rounded(timeS) {
    return Math.round(timeS * 1000) / 1000;
}
