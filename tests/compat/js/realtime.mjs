// Transcribe audio live with OpenAI's SDK, until a turn is completed or something fails. Takes {kind, caPath, baseURL,
// apiKey, audioPath}, prints all events; an error as {error}.
import fs from "node:fs";
import OpenAI from "openai";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import WebSocket from "ws";

const PIECE = 9600;
const { kind, caPath, baseURL, apiKey, audioPath } = JSON.parse(process.argv[2]);
const options = { ca: fs.readFileSync(caPath) };
// What browsers have. They offer subprotocols and can set no headers, as here.
globalThis.WebSocket = class extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols, options);
  }
};

const client = new OpenAI({ baseURL, apiKey, dangerouslyAllowBrowser: true });
const model = "gpt-4o-transcribe";
const realtime =
  kind === "ws" ? new OpenAIRealtimeWS({ model, options }, client) : new OpenAIRealtimeWebSocket({ model }, client);

const told = [];
const ended = new Promise((resolve) => {
  realtime.on("error", (error) => {
    told.push({ error: { name: error.constructor.name, message: error.message, code: error.error?.code } });
    resolve();
  });
  realtime.on("event", (event) => told.push(event));
  realtime.on("conversation.item.input_audio_transcription.completed", resolve);
});
realtime.on("session.created", () => {
  const input = { transcription: { model, language: "en" }, turn_detection: { type: "server_vad" } };
  realtime.send({ type: "session.update", session: { type: "transcription", audio: { input } } });
  const audio = fs.readFileSync(audioPath);
  for (let at = 0; at < audio.length; at += PIECE) {
    const piece = audio.subarray(at, at + PIECE).toString("base64");
    realtime.send({ type: "input_audio_buffer.append", audio: piece });
  }
});
await ended;
realtime.close();
console.log(JSON.stringify(told));
