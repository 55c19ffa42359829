// Streams raw 16-bit mono PCM to tutti, from a file or a pipe, and shows captions in the terminal.
//
//   node stream.mjs speech.pcm
//   ffmpeg -loglevel error -i talk.mp3 -f s16le -ar 16000 -ac 1 - | node stream.mjs -

import { createReadStream } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { connect, TuttiError } from "tutti-asr-client";

const USAGE = "node stream.mjs FILE|- [--rate 16000] [--speed 1] [--language en] [--url ws://127.0.0.1:8000]";
const BYTES_PER_SAMPLE = 2;
const CHUNK_S = 0.1;
const CLEAR_LINE = "\r\x1b[K";
const DIM = "\x1b[2m";
const PLAIN = "\x1b[0m";

function readArguments() {
  const number = (name, value) => {
    if (!(Number(value) > 0)) throw new Error(`--${name}: expected a number above 0, got ${value}`);
    return Number(value);
  };
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      rate: { type: "string", default: "16000" },
      speed: { type: "string" },
      language: { type: "string" },
      url: { type: "string", default: "ws://127.0.0.1:8000" },
      "api-key": { type: "string", default: process.env.TUTTI_API_KEY || undefined },
    },
  });
  if (positionals.length !== 1) throw new Error(`expected one file, or - for a pipe, got ${positionals.length}`);
  const [source] = positionals;
  return {
    source,
    rate: number("rate", values.rate),
    // A file is played as it was spoken. What comes through a pipe has a pace of its own.
    speed: values.speed === undefined ? (source === "-" ? Infinity : 1) : number("speed", values.speed),
    language: values.language,
    url: values.url,
    apiKey: values["api-key"],
  };
}

/** Sends the audio no faster than `speed`, and never further ahead of real time than the server allows. */
async function send(session, audio, { rate, speed }) {
  const began = performance.now();
  let sentS = 0;
  try {
    for await (const chunk of audio) {
      if (!session.isOpen) return;
      sentS += chunk.length / BYTES_PER_SAMPLE / rate;
      const dueS = Math.max(sentS / speed, sentS - 0.8 * session.limits.max_ahead_s);
      const waitMs = dueS * 1000 - (performance.now() - began);
      if (waitMs > 0) await sleep(waitMs);
      // Not more than a buffer of audio waits for a slow network.
      await session.writable();
      session.send(chunk);
    }
  } catch (error) {
    // Ctrl-C has closed the source.
    if (error.code !== "ERR_STREAM_PREMATURE_CLOSE") throw error;
  }
  session.stop();
}

/** Final text stays; on a terminal, the line that is being spoken is drawn again with each change. */
async function show(session) {
  const isTerminal = process.stdout.isTTY;
  for await (const event of session) {
    if (event.type === "interim" && isTerminal) {
      process.stdout.write(`${CLEAR_LINE}${event.stable}${DIM}${event.tail}${PLAIN}`);
    } else if (event.type === "segment") {
      process.stdout.write(`${isTerminal ? CLEAR_LINE : ""}${event.start_s.toFixed(2).padStart(7)}  ${event.text.trim()}\n`);
    } else if (event.type === "warning" || event.type === "reconnecting") {
      process.stderr.write(`stream.mjs: ${event.message ?? event.reason}\n`);
    }
  }
}

async function main() {
  const options = readArguments();
  const { source, rate, language, url, apiKey } = options;
  const highWaterMark = Math.round(rate * CHUNK_S) * BYTES_PER_SAMPLE;
  const audio = source === "-" ? process.stdin : createReadStream(source, { highWaterMark });
  // A file that cannot be opened is an error before there is a session.
  if (source !== "-") await new Promise((resolve, reject) => audio.once("open", resolve).once("error", reject));
  const session = await connect(url, { apiKey, start: { audio: { sample_rate: rate }, language } });
  // The program that read our output has ended.
  process.stdout.once("error", () => process.exit(1));
  // The first Ctrl-C ends the audio, and the last text still comes; the second one ends the program.
  process.once("SIGINT", () => audio.destroy());
  await Promise.all([show(session), send(session, audio, options)]);
}

try {
  await main();
} catch (error) {
  const isUsage = !(error instanceof TuttiError) && error.syscall === undefined;
  process.stderr.write(`stream.mjs: ${error.message}${isUsage ? `\nusage: ${USAGE}` : ""}\n`);
  process.exit(isUsage ? 2 : 1);
}
