/**
 * What a session sends, in its order: audio, and flushes at their places in it. It is kept until its text is final, so
 * that it can be sent again on another connection. This module does no I/O.
 */
/**
 * How much audio is kept before what is not final, in seconds, if the server does not say how much its speech detector
 * needs: it adapts to the audio. The Python client says how it was measured.
 */
const LEAD_IN_S = 10;
/** The most flushes that a server lets wait for their answers (docs/protocol.md). Others are sent as answers come. */
const MAX_FLUSHES_WAITING = 64;
/** The audio and the flushes of a session that may still have to be sent, or sent again. */
export class Outgoing {
    #format;
    #capacityBytes;
    /** The time of the first byte of the session, in seconds. */
    #originS;
    #chunks = [];
    #flushes = [];
    /** The place after the newest byte. */
    #end = 0;
    /** The place of the next byte to send. */
    #next = 0;
    /** How many of the kept flushes this connection has got. */
    #nFlushed = 0;
    /** The place from which on another connection needs the audio. */
    #needed = 0;
    /** Whether a connection depends on the audio from `#next` on. */
    #isAttached = true;
    /**
     * @param keptS how much audio is kept while there is no connection, or after it was sent, in seconds.
     * @param originS the time of the first sample, in seconds.
     */
    constructor(format, keptS, originS) {
        this.#format = format;
        this.#originS = originS;
        this.#capacityBytes = this.bytesOf(keptS);
    }
    /** The bytes that this connection has not got yet, or without a connection the next one. */
    get unsentBytes() {
        return this.#end - this.#next;
    }
    /** Whether this connection has got everything, and all flushes are answered. */
    get isAnswered() {
        return this.unsentBytes === 0 && this.#flushes.length === 0;
    }
    /** Whether many flushes wait for their answers, and another one comes next. */
    get isWaitingForAnswers() {
        return this.#nFlushed >= MAX_FLUSHES_WAITING && (this.#flushes[this.#nFlushed]?.at ?? Infinity) <= this.#next;
    }
    /** The length of audio in seconds. */
    secondsOf(nBytes) {
        return nBytes / this.#format.frameBytes / this.#format.sampleRate;
    }
    /** The bytes of whole samples that are not longer than this, in seconds. */
    bytesOf(durationS) {
        return durationS === Infinity ? Infinity : Math.floor(durationS * this.#format.sampleRate) * this.#format.frameBytes;
    }
    /** Adds audio, which is copied. Without a connection, the oldest audio is dropped when there is too much. */
    push(audio) {
        if (audio.length > 0) {
            this.#chunks.push({ at: this.#end, bytes: audio.slice() });
            this.#end += audio.length;
            this.#drop(this.#end - this.#capacityBytes);
        }
    }
    /** Adds a flush after all audio so far. */
    flush(id) {
        this.#flushes.push({ at: this.#end, id });
    }
    /** The server has answered a flush. */
    answered(id) {
        const index = this.#flushes.findIndex((flush) => flush.id === id);
        if (index >= 0) {
            this.#flushes.splice(index, 1);
            this.#nFlushed -= index < this.#nFlushed ? 1 : 0;
        }
    }
    /**
     * Audio before a time is final.
     *
     * @param detectorFromS for each channel, from when on the server's speech detector needs the audio, if known.
     * @param neededFromS from when on the audio is needed for translations; undefined for none.
     */
    forget(untilS, detectorFromS, neededFromS) {
        const final = this.#placeOf(untilS);
        const needed = detectorFromS.filter((timeS) => timeS !== null).map((timeS) => this.#placeOf(timeS));
        if (needed.length === 0 || needed.length < detectorFromS.length) {
            needed.push(final - this.bytesOf(LEAD_IN_S));
        }
        if (neededFromS !== undefined) {
            needed.push(this.#placeOf(neededFromS));
        }
        this.#needed = this.#capacityBytes === 0 ? final : Math.min(final, ...needed);
        this.#drop(this.#needed);
    }
    /** The connection is lost: no audio that was sent or not is safe from being dropped now. */
    detach() {
        this.#isAttached = false;
        this.#drop(this.#end - this.#capacityBytes);
    }
    /**
     * A new connection begins: everything is sent again from this time on, with some audio before it. Returns the time of the
     * first sample that will be sent, and the end of the audio that is lost, if some is.
     */
    rewind(fromS) {
        const oldest = this.#chunks[0]?.at ?? this.#end;
        const place = Math.min(this.#placeOf(fromS), this.#end);
        this.#isAttached = true;
        this.#nFlushed = 0;
        this.#next = Math.max(oldest, Math.min(place, this.#needed));
        if (oldest > place) {
            return { audioFromS: this.#timeOf(oldest), lostUntilS: this.#timeOf(oldest) };
        }
        return { audioFromS: Math.min(fromS, this.#timeOf(this.#next)), lostUntilS: undefined };
    }
    /**
     * Takes the next thing to send: audio of at most `maxBytes`, or a flush. Undefined if all has been sent, or if many
     * flushes wait for their answers.
     */
    next(maxBytes) {
        const flush = this.#flushes[this.#nFlushed];
        if (this.isWaitingForAnswers) {
            return undefined;
        }
        if (flush !== undefined && flush.at <= this.#next) {
            this.#nFlushed += 1;
            return { flush: flush.id };
        }
        const chunk = this.#chunks.find(({ at, bytes }) => this.#next < at + bytes.length);
        if (chunk === undefined || maxBytes <= 0) {
            return undefined;
        }
        const begin = this.#next - chunk.at;
        const end = Math.min(begin + maxBytes, chunk.bytes.length, (flush?.at ?? Infinity) - chunk.at);
        const audio = chunk.bytes.subarray(begin, end);
        this.#next += audio.length;
        this.#drop(this.#end - this.#capacityBytes);
        return { audio };
    }
    /** Drops audio before this place, in whole frames, but none that the connection still has to get. */
    #drop(place) {
        const limit = this.#isAttached ? Math.min(place, this.#next) : place;
        const whole = Math.floor(limit / this.#format.frameBytes) * this.#format.frameBytes;
        while (this.#chunks[0] !== undefined && this.#chunks[0].at + this.#chunks[0].bytes.length <= whole) {
            this.#chunks.shift();
        }
        const [first] = this.#chunks;
        if (first !== undefined && first.at < whole) {
            this.#chunks[0] = { at: whole, bytes: first.bytes.subarray(whole - first.at) };
        }
    }
    #placeOf(timeS) {
        return Math.max(0, Math.round((timeS - this.#originS) * this.#format.sampleRate)) * this.#format.frameBytes;
    }
    #timeOf(place) {
        return this.#originS + this.secondsOf(place);
    }
}
