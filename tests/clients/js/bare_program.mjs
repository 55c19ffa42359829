// Captions from an audio source, and a file, in a context without a DOM (bare.mjs). Prints what it finds.

import { record, transcribeFile } from "tutti-asr-client";

const BYTES_PER_S = 32_000;
const CHUNK_S = 0.1;
const DOM = ["window", "document", "navigator", "location", "performance", "console", "URL", "Blob", "FormData", "Event"];
const OTHERS = ["TextDecoder", "TextEncoder", "DOMException", "AbortController", "structuredClone", "queueMicrotask"];

const { url, speed, audio, file, print } = host;
print({ type: "environment", has: [...DOM, ...OTHERS].filter((name) => name in globalThis) });

const bytes = new Uint8Array(audio);
let session;
const source = {
  sampleRate: 16_000,
  state: "live",
  start(onChunk) {
    let at = 0;
    const step = () => {
      if (at >= bytes.length) {
        session.stop();
        return;
      }
      onChunk(new Int16Array(bytes.slice(at, at + BYTES_PER_S * CHUNK_S).buffer));
      at += BYTES_PER_S * CHUNK_S;
      setTimeout(step, (CHUNK_S / speed) * 1000);
    };
    setTimeout(step, 0);
  },
  stop() {
    this.state = "stopped";
  },
};
session = await record(url, source, { start: { language: "en", endpointing: { mode: "vad" } } });
for await (const event of session) {
  print(event);
}
print({ type: "source", state: source.state });
for await (const event of transcribeFile(url, new Uint8Array(file), { language: "en", prompt: "čau" })) {
  print({ type: "file", event });
}
