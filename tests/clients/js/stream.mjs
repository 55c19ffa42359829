// Streams a file of raw 16-bit PCM at 16 kHz faster than it was spoken, and prints each event as a line of JSON.
// Arguments: the folder of the client's modules, the URL of the server, the file, the speed, and perhaps an API key: each
// connection has a client secret of its own then, which ends before the next one begins.

import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";

const BYTES_PER_S = 32_000;
const CHUNK_S = 0.1;

const [modules, url, path, speed, key] = process.argv.slice(2);
const { connect } = await import(`${modules}/index.js`);
const audio = readFileSync(path);
// With a fixed silence the same audio ends in the same places, however late the server answers.
const endpointing = { mode: "vad" };
let secret;
const start = { audio: { sample_rate: 16_000 }, language: "en", endpointing };
const session = await connect(url, { start, apiKey: key ? freshSecret : undefined });

async function freshSecret() {
  if (secret !== undefined) {
    await post("/withdraw", { value: secret });
  }
  secret = (await post("", {})).value;
  return secret;
}

async function post(path, body) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/realtime/client_secrets${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) {
    throw new Error(await answer.text());
  }
  return answer.json();
}

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
