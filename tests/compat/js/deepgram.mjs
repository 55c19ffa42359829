// Listen with Deepgram's SDK. Takes {address, apiKey, audio: path of raw samples, live, recording: path, params},
// prints what came of the stream and of the recording.
import fs from "node:fs";
import { DeepgramClient, DeepgramError } from "@deepgram/sdk";

const { address, apiKey, audio, live, recording, params } = JSON.parse(process.argv[2]);
const [http, ws] = [`http://${address}`, `ws://${address}`];
const client = new DeepgramClient({ apiKey, environment: { base: http, production: ws, agent: ws, agentRest: http } });

async function stream() {
  const messages = [];
  let connects = 0;
  const socket = await client.listen.v1.connect(live);
  const closed = new Promise((resolve) => socket.on("close", (event) => resolve(event.code)));
  socket.on("open", () => connects++);
  socket.on("message", (message) => messages.push(message));
  socket.on("error", () => {});
  socket.connect();
  try {
    await socket.waitForOpen();
  } catch (error) {
    socket.close();
    return { refused: String(error.message) };
  }
  const samples = fs.readFileSync(audio);
  for (let at = 0; at < samples.length; at += 3200) socket.sendMedia(samples.subarray(at, at + 3200));
  socket.sendKeepAlive({ type: "KeepAlive" });
  socket.sendFinalize({ type: "Finalize" });
  socket.sendCloseStream({ type: "CloseStream" });
  const code = await closed;
  return { messages, code, connects, readyState: socket.readyState };
}

async function transcribed() {
  try {
    return { answer: await client.listen.v1.media.transcribeFile(fs.createReadStream(recording), params, { maxRetries: 0 }) };
  } catch (error) {
    if (!(error instanceof DeepgramError)) throw error;
    return { error: { name: error.constructor.name, status: error.statusCode, body: error.body } };
  }
}

console.log(JSON.stringify({ live: await stream(), recorded: await transcribed() }));
