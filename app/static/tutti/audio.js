import { UsageError } from "./errors.js";
const BYTES_PER_SAMPLE = { pcm_s16le: 2, pcm_f32le: 4, mulaw: 1, alaw: 1 };
export function formatOf(start) {
    const { encoding = "pcm_s16le", sample_rate = 16_000, channels = 1 } = start.audio ?? {};
    return { sampleRate: sample_rate, frameBytes: BYTES_PER_SAMPLE[encoding] * channels };
}
export function bytesOf(audio) {
    return ArrayBuffer.isView(audio)
        ? new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength)
        : new Uint8Array(audio);
}
export function checkEncoding(audio, encoding = "pcm_s16le") {
    const wanted = audio instanceof Float32Array ? "pcm_f32le" : audio instanceof Int16Array ? "pcm_s16le" : encoding;
    if (wanted !== encoding) {
        throw new UsageError("bad_audio", `audio: expected ${encoding}, as start said, got ${audio.constructor.name}`);
    }
}
