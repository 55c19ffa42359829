/** Gets records from the server: of a recording that it is sent, or of a job. */

import { apiKey } from "../page/keys.js";
import { formOf } from "../tutti/form.js";
import { ConnectError } from "../tutti/errors.js";
import { upload } from "../tutti/http.js";

const PATH = "/v1/audio/transcriptions";

/** The server has refused. The message is a sentence for the user. */
export class Refused extends Error {
  /** Whether the server needs an API key, or another one. */
  isAboutKey;

  constructor(message, isAboutKey = false) {
    super(message);
    this.isAboutKey = isAboutKey;
  }
}

/**
 * The text of the record that the server makes of a recording. `onUploaded` is called with the share that has been sent.
 * Throws `Refused`, or an `AbortedError` where the signal fires.
 */
export async function transcribe(file, { channelNames, language, signal, onUploaded }) {
  const fields = [["model", "whisper-1"], ["response_format", "call_record"], ...channelNames.map((name) => ["channel_names[]", name])];
  if (language !== "") {
    fields.push(["language", language]);
  }
  const request = { url: new URL(PATH, location.origin).href, form: formOf(fields, file, file.name), headers: headers(), signal, onUploaded };
  const { status, answer } = await uploaded(request);
  if (status !== 200) {
    throw refusal(status, answer);
  }
  return answer;
}

async function uploaded(request) {
  try {
    const { status, text } = await upload(request);
    let answer = "";
    for await (const piece of text) {
      answer += piece;
    }
    return { status, answer };
  } catch (error) {
    throw error instanceof ConnectError ? unreachable(error) : error;
  }
}

/** The text of the result of a job. Throws `Refused`, or an `AbortError` where the signal fires. */
export async function jobResult(id, signal) {
  const { response, text } = await fetched(`/v1/jobs/${encodeURIComponent(id)}/result`, signal);
  if (!response.ok) {
    throw refusal(response.status, text);
  }
  const [type] = (response.headers.get("content-type") ?? "").split(";");
  if (type !== "application/json") {
    throw new Refused(`The result of this job is ${type}, not the JSON of a record. Create the job with response_format=call_record.`);
  }
  return text;
}

async function fetched(path, signal) {
  try {
    const response = await fetch(path, { headers: headers(), signal });
    return { response, text: await response.text() };
  } catch (error) {
    throw signal.aborted ? error : unreachable(error);
  }
}

/** The languages of the server's model, as codes and names; none if it does not answer. */
export async function languages() {
  try {
    const response = await fetch("/page/model");
    return response.ok ? (await response.json()).languages : [];
  } catch {
    // Without a network, the page still reads files.
    return [];
  }
}

function headers() {
  return apiKey() === undefined ? {} : { Authorization: `Bearer ${apiKey()}` };
}

function unreachable(error) {
  console.info("The server does not answer:", error);
  return new Refused("the server cannot be reached. Check the connection and try again.");
}

function refusal(status, answer) {
  if (status === 401 || status === 403) {
    return new Refused(apiKey() === undefined ? "This server needs an API key." : "The server does not accept this API key.", true);
  }
  return new Refused(`The server answered: ${messageOf(answer) ?? `status ${status}`}.`);
}

function messageOf(answer) {
  try {
    return JSON.parse(answer).error.message;
  } catch {
    return undefined;
  }
}
