/**
 * Makes one stream of events out of the connections of a session: what was shown stays, what comes again is left out.
 * This module does no I/O. `tests/wire/resume.json` holds its golden cases, which the Python client passes too.
 *
 * A connection that resumes a session transcribes again what was not final when the one before it was lost. Its events
 * have numbers of their own, and repeat text that the application has received already.
 *
 * 1. **Numbers.** Every utterance that was open at the loss waits for its counterpart. When the new connection announces
 *    an utterance, those waiting ones of its channel are considered that began before it, or less than `SAME_START_S`
 *    after it. The one whose beginning is nearest keeps its number, and is not announced again; those before it end. If
 *    there is none, the utterance gets the next number. Segments are numbered in the order in which they are delivered.
 * 2. **Text.** Of an open utterance, `shown` is what must stay: the texts of its segments, and the stable text after
 *    them. The text of the counterpart begins where the audio was resumed, mostly at the beginning of the utterance:
 *    after the segments that began before. As long as `shown` covers this text, segments are delivered with the words of
 *    `shown`, and interims not at all. Once the text goes beyond `shown`, the two are joined: from then on, the text of
 *    the utterance is `shown`, and after it what the counterpart has behind the place that corresponds to its end.
 *    `align` finds that place.
 * 3. **Ends.** An utterance whose counterpart ended before its text had reached the end of `shown` gets the rest of
 *    `shown` as a last segment; the next utterance of the channel does not repeat it. An utterance without a counterpart
 *    ends with what was shown as soon as the new connection is past its beginning, or when its audio is lost.
 * 4. **Turns.** An "eager_end" promises that its text is that of the utterance, unless "resumed" follows. So a loss of
 *    the connection after it is followed by "resumed", and its text is what the utterance would be with that text.
 */
import { align, followsWords, wordsOf } from "./align.js";
import { growWords, wordsAfter } from "./stable_words.js";
import { PendingTranslations } from "./translations.js";
/** Two utterances of a channel whose beginnings differ by less than this, in seconds, may be the same one. */
const SAME_START_S = 1;
/** The events of a session over all of its connections. */
export class Continuity {
    #resumeFromS;
    #languages = new Map();
    #detectorFromS;
    #isResumed = false;
    #beganS;
    #audioFromS;
    /** The utterances that were announced and have not ended, in the order of their numbers. */
    #open = [];
    /** The open utterances by the numbers that they have in this connection. */
    #counterparts = new Map();
    /** For each channel, text that was delivered although the connection has not sent it yet. */
    #unrepeated = new Map();
    #nextNumber = 0;
    #nextSegmentId = 0;
    /** The words of all segments that were delivered. */
    #nWords = 0;
    /** For each utterance, the eager end that was delivered and not taken back. */
    #eagerEnds = new Map();
    /** The length of all utterances that have ended, in seconds. */
    #speechS = 0;
    /** Which translations are still to come. */
    translations;
    /**
     * @param fromS where the session begins: one time for each channel, or one for all.
     * @param translate the languages that final text is translated to.
     */
    constructor(fromS, translate = []) {
        this.translations = new PendingTranslations(translate);
        this.#resumeFromS = fromS;
        this.#detectorFromS = fromS.map(() => null);
        this.#beganS = this.#audioFromS = Math.min(...fromS);
    }
    /** For each channel, the time from which on its text is not final yet. */
    get resumeFromS() {
        return this.#resumeFromS;
    }
    /** For each channel, the language of its last utterance if the server detected it; undefined where none is known. */
    get languages() {
        const languages = this.#resumeFromS.map((_, channel) => this.#languages.get(channel) ?? null);
        return languages.some((language) => language !== null) ? languages : undefined;
    }
    /** For each channel, from when on a detector must process the audio to find the same speech after that time. */
    get detectorFromS() {
        return this.#detectorFromS;
    }
    /** Audio before this time is final on all channels. */
    get finalUntilS() {
        return Math.min(...this.#resumeFromS);
    }
    /**
     * A new connection has begun; `receive` gets its events from now on. Returns what takes back the eager ends, and the
     * ends of utterances whose audio is lost.
     *
     * @param audioFromS the time of the first sample that is sent.
     * @param lostUntilS if audio that was not final is lost, the time of its end.
     */
    resume(audioFromS, lostUntilS) {
        this.#isResumed = true;
        this.#audioFromS = audioFromS;
        this.#counterparts.clear();
        this.#unrepeated.clear();
        this.translations.restart();
        const takenBack = this.#open.flatMap((utterance) => this.#takeBack(utterance));
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
    /** The events to deliver for an event of the present connection. */
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
                const translation = this.translations.receive(event);
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
        this.translations.noteNumber(event.utterance, counterpart.number);
        counterpart.isWaiting = false;
        const skipped = earlier.slice(0, earlier.indexOf(counterpart));
        return skipped.flatMap((utterance) => this.#close(utterance, event.at_s));
    }
    #announce({ utterance, channel }, atS) {
        const announced = new OpenUtterance(this.#nextNumber++, channel, atS, this.#unrepeated.get(channel) ?? "");
        this.#unrepeated.delete(channel);
        this.#open.push(announced);
        this.#counterparts.set(utterance, announced);
        this.translations.noteNumber(utterance, announced.number);
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
        this.translations.add(segment);
        return [{ ...segment, id: this.#nextSegmentId++ }];
    }
    #turn(event) {
        const utterance = this.#find(event, event.at_s);
        const text = event.text === null ? null : utterance.textWith(event.text);
        const turn = { ...event, utterance: utterance.number, text };
        if (turn.event === "eager_end") {
            this.#eagerEnds.set(utterance.number, turn);
        }
        else if (turn.event === "resumed") {
            this.#eagerEnds.delete(utterance.number);
        }
        return turn;
    }
    /** What follows an eager end whose text is not that of the utterance, which is `text`, or is not known. */
    #takeBack(utterance, text) {
        const turn = this.#eagerEnds.get(utterance.number);
        this.#eagerEnds.delete(utterance.number);
        if (turn === undefined || turn.text === text) {
            return [];
        }
        const atS = Math.max(turn.at_s, utterance.shownUntilS);
        return [{ ...turn, event: "resumed", at_s: atS, confidence: null, text: null }];
    }
    #end(event) {
        const utterance = this.#find(event, event.start_s);
        this.#counterparts.delete(event.utterance);
        if (event.language !== undefined) {
            this.#languages.set(event.channel, event.language);
        }
        const points = this.#resumePoints(event);
        const resumeFromS = points.map(({ timeS }) => timeS);
        const untilS = timeOf(resumeFromS, event.channel);
        const passed = this.#open.filter(({ isWaiting, channel, atS }) => isWaiting && channel === event.channel && atS + SAME_START_S < untilS);
        const closed = passed.flatMap((each) => this.#close(each, untilS));
        this.#resumeFromS = resumeFromS;
        this.#detectorFromS = points.map(({ knownS }) => knownS);
        this.translations.forgetBefore(event.translated_until_s);
        const rest = utterance.unrepeated;
        if (rest !== "") {
            this.#unrepeated.set(event.channel, rest);
        }
        return [...closed, ...this.#finish(utterance, event)];
    }
    /** For each channel, where its text is not final yet, and from when on a detector must process the audio. */
    #resumePoints(event) {
        const times = event.resume_from_s;
        const isKnown = event.detector_from_s.length === times.length;
        const isSame = times.length === this.#resumeFromS.length;
        return times.map((timeS, channel) => {
            const beforeS = isSame ? timeOf(this.#resumeFromS, channel) : -Infinity;
            const knownS = isKnown ? event.detector_from_s[channel] : null;
            return timeS >= beforeS
                ? { timeS, knownS: knownS ?? null }
                : { timeS: beforeS, knownS: this.#detectorFromS[channel] ?? null };
        });
    }
    /** Ends an utterance of which no more text comes. Without its audio, or without text, it is not covered. */
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
        });
    }
    #finish(utterance, event) {
        this.#open = this.#open.filter((each) => each !== utterance);
        const rest = this.#deliver(utterance.popRest());
        this.#speechS += event.end_s - event.start_s;
        if (!this.#isResumed) {
            this.#eagerEnds.delete(utterance.number);
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
        return [...rest, ...this.#takeBack(utterance, ended.text), ended];
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
/** An utterance that was announced and has not ended. */
class OpenUtterance {
    number;
    channel;
    /** Where it begins, in seconds. */
    atS;
    /** The utterance waits for its counterpart in this connection. */
    isWaiting = false;
    /** The end of the newest interim that was delivered. */
    shownUntilS;
    #nHidden;
    /** The texts of the segments that were delivered. */
    #final;
    /** `#final`, and the stable text that was delivered after it. */
    #shown;
    /** The words of that stable text, if they were asked for. */
    #words = [];
    /** The segments that were delivered, each with `#final` after it. */
    #segments = [];
    /** The part of `#final` that this connection does not repeat. */
    #kept = "";
    /** The texts of the segments that this connection has sent. */
    #theirFinal = "";
    /** Our text, and the length of theirs, after which both go on alike; undefined if theirs is not so far yet. */
    #joint;
    /** @param hidden text that the connection may send in this utterance, but which was delivered before it. */
    constructor(number, channel, atS, hidden) {
        this.number = number;
        this.channel = channel;
        this.atS = this.shownUntilS = atS;
        this.#nHidden = hidden.length;
        this.#final = this.#shown = hidden;
        this.#joint = hidden === "" ? { ours: "", nTheirs: 0 } : undefined;
    }
    /** The end of the segments that were delivered. */
    get endS() {
        return this.#segments.length === 0 ? this.atS : Math.max(...this.#segments.map(({ segment }) => segment.end_s));
    }
    /** The utterance began in this connection, so that its text is as the connection sends it. */
    get isWhole() {
        return this.#joint?.ours === "" && this.#joint.nTheirs === 0;
    }
    /** Some text of it was shown. */
    get hasText() {
        return this.#shown.length > this.#nHidden;
    }
    /** The text that was delivered in segments. */
    get text() {
        return this.#nHidden > 0 ? this.#final.slice(this.#nHidden).trimStart() : this.#final;
    }
    /** What was shown and is not in the text of the connection. */
    get unrepeated() {
        return this.#joint === undefined ? this.#repeatable.slice(align(this.#repeatable, this.#theirFinal)[0]) : "";
    }
    get #repeatable() {
        return this.#shown.slice(this.#kept.length);
    }
    /** The connection is lost. Another one sends the text of the audio from `fromS` on. */
    waitForCounterpart(fromS) {
        this.isWaiting = true;
        const kept = this.#segments.filter(({ segment }) => segment.start_s < fromS).map(({ final }) => final);
        this.#kept = kept.reduce((longest, final) => (final.length > longest.length ? final : longest), "");
        this.#theirFinal = "";
        this.#joint = undefined;
    }
    /** The text of the utterance if the connection sent `theirs` as its text. */
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
    /** The segment to deliver, if there is one. */
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
        this.#words = wordsAfter(this.#words, text);
        if (this.#isHiddenBefore(nBefore)) {
            text = text.trimStart();
        }
        const isTheirs = text === event.text;
        const startS = isTheirs ? event.start_s : Math.min(Math.max(event.start_s, this.endS), event.end_s);
        const words = timedWords(text, event, startS);
        return this.#keep({ ...event, utterance: this.number, start_s: startS, text, words });
    }
    /** The interim to deliver, if it shows anything that is not shown already. */
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
    /** What was shown as stable and is in no segment, as a last segment. */
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
        });
    }
    #interim(event, tail) {
        const stable = this.#shown.slice(this.#final.length);
        const theirs = event.stable_words ?? [];
        this.#words = this.isWhole ? theirs : growWords(this.#words, stable, theirs);
        const { stable_words: _, ...rest } = event;
        const words = this.#words.length === 0 ? {} : { stable_words: this.#words };
        const shown = { ...rest, utterance: this.number, stable, tail, ...words };
        if (!this.#isHiddenBefore(this.#final.length)) {
            return shown;
        }
        return { ...shown, stable: stable.trimStart(), tail: stable.trim() === "" ? tail.trimStart() : tail };
    }
    /** The first text that is delivered follows hidden text. It begins the utterance, so it has no leading space. */
    #isHiddenBefore(nChars) {
        return nChars > 0 && nChars === this.#nHidden;
    }
    #keep(segment) {
        this.#segments.push({ segment, final: this.#final });
        return segment;
    }
    /** Our text that corresponds to the beginning of their text. It begins with what is final. */
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
    /** What their text lacks at its beginning where it goes on after text that it does not repeat. */
    #separator(theirs) {
        return this.#kept !== "" && this.#shown === this.#kept && !followsWords(theirs) ? " " : "";
    }
}
/** The time of a channel, in a list with one for each channel or one for all. */
function timeOf(timesS, channel) {
    return timesS[Math.min(channel, timesS.length - 1)] ?? 0;
}
/** The times of the words of `text`, which may be the end of the segment's text, or another version of it. */
function timedWords(text, event, startS) {
    if (text === event.text || event.words.length === 0) {
        return event.words;
    }
    const words = wordsOf(text);
    const last = words.length === 0 ? [] : event.words.slice(-words.length);
    if (event.text.endsWith(text) && last.map(({ word }) => word.trim()).join("") === words.join("")) {
        return last;
    }
    // Each word gets a share of the time by its length.
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
/** A time with whole milliseconds. */
function rounded(timeS) {
    return Math.round(timeS * 1000) / 1000;
}
