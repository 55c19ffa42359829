// Transcribe files with OpenAI's SDK. Takes {baseURL, apiKey, calls: [{path, params}]}, prints a list of results.
import fs from "node:fs";
import OpenAI from "openai";

const { calls, ...options } = JSON.parse(process.argv[2]);
const client = new OpenAI({ maxRetries: 0, ...options });

async function result({ path, params }) {
  try {
    const answer = await client.audio.transcriptions.create({ file: fs.createReadStream(path), ...params });
    if (!params.stream) return { answer, requestId: answer._request_id };
    const events = [];
    for await (const event of answer) events.push(event);
    return { events };
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    const { status, code, type, param, message, requestID } = error;
    return { error: { name: error.constructor.name, status, code, type, param, message, requestID } };
  }
}

const results = [];
for (const call of calls) results.push(await result(call));
console.log(JSON.stringify(results));
