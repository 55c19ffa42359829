const CHUNK_S = 0.1;
const INT16_MAX = 32767;
class PcmChunks extends AudioWorkletProcessor {
    #chunkSamples = Math.round(sampleRate * CHUNK_S);
    #chunk = new Int16Array(this.#chunkSamples);
    #filled = 0;
    constructor() {
        super();
        this.port.onmessage = () => {
            this.#post();
            this.port.postMessage(new Int16Array(0));
        };
    }
    process(inputs) {
        for (const sample of inputs[0]?.[0] ?? []) {
            this.#chunk[this.#filled++] = Math.round(Math.max(-1, Math.min(1, sample)) * INT16_MAX);
            if (this.#filled === this.#chunkSamples) {
                this.#post();
            }
        }
        return true;
    }
    #post() {
        if (this.#filled === 0) {
            return;
        }
        const chunk = this.#filled === this.#chunkSamples ? this.#chunk : this.#chunk.slice(0, this.#filled);
        this.port.postMessage(chunk, [chunk.buffer]);
        this.#chunk = new Int16Array(this.#chunkSamples);
        this.#filled = 0;
    }
}
registerProcessor("tutti-pcm-chunks", PcmChunks);
export {};
