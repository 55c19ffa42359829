// Streams a file of raw 16-bit PCM at 16 kHz faster than it was spoken, and prints each event as a line of JSON.
// Arguments: the folder of the client's modules, the URL of the server, the file, the speed.

import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";

const BYTES_PER_S = 32_000;
const CHUNK_S = 0.1;

const [modules, url, path, speed] = process.argv.slice(2);
const { connect } = await import(`${modules}/index.js`);
const audio = readFileSync(path);
// With a fixed silence the same audio ends in the same places, however late the server answers.
const endpointing = { mode: "vad" };
const session = await connect(url, { start: { audio: { sample_rate: 16_000 }, language: "en", endpointing } });

async function send() {
  for (let at = 0; at < audio.length; at += BYTES_PER_S * CHUNK_S) {
    session.send(audio.subarray(at, at + BYTES_PER_S * CHUNK_S));
    await wait((CHUNK_S / Number(speed)) * 1000);
  }
  session.stop();
}

const sending = send();
for await (const event of session) {
  console.log(JSON.stringify(event));
}
await sending;
