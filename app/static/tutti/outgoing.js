const LEAD_IN_S = 10;
const MAX_FLUSHES_WAITING = 64;
export class Outgoing {
    #format;
    #capacityBytes;
    #originS;
    #chunks = [];
    #flushes = [];
    #end = 0;
    #next = 0;
    #nFlushed = 0;
    #needed = 0;
    #isAttached = true;
    constructor(format, keptS, originS) {
        this.#format = format;
        this.#originS = originS;
        this.#capacityBytes = this.bytesOf(keptS);
    }
    get unsentBytes() {
        return this.#end - this.#next;
    }
    get isAnswered() {
        return this.unsentBytes === 0 && this.#flushes.length === 0;
    }
    get isWaitingForAnswers() {
        return this.#nFlushed >= MAX_FLUSHES_WAITING && (this.#flushes[this.#nFlushed]?.at ?? Infinity) <= this.#next;
    }
    secondsOf(nBytes) {
        return nBytes / this.#format.frameBytes / this.#format.sampleRate;
    }
    bytesOf(durationS) {
        return durationS === Infinity ? Infinity : Math.floor(durationS * this.#format.sampleRate) * this.#format.frameBytes;
    }
    push(audio) {
        if (audio.length > 0) {
            this.#chunks.push({ at: this.#end, bytes: audio.slice() });
            this.#end += audio.length;
            this.#drop(this.#end - this.#capacityBytes);
        }
    }
    flush(id) {
        this.#flushes.push({ at: this.#end, id });
    }
    answered(id) {
        const index = this.#flushes.findIndex((flush) => flush.id === id);
        if (index >= 0) {
            this.#flushes.splice(index, 1);
            this.#nFlushed -= index < this.#nFlushed ? 1 : 0;
        }
    }
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
    detach() {
        this.#isAttached = false;
        this.#drop(this.#end - this.#capacityBytes);
    }
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
