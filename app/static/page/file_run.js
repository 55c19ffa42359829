/** Transcribes a file: uploads it, shows how far it is, and adds its text to the transcript. */

import { clock } from "../tutti/clock.js";
import { AbortedError, RequestError, transcribeFile, UsageError } from "../tutti/index.js";
import { page } from "./elements.js";
import { explain } from "./explain.js";
import { kept } from "./keeper.js";
import { apiKey } from "./keys.js";
import { hideMessage, sentence, showMessage, warn } from "./messages.js";
import { fileOptions } from "./options.js";
import { SessionText } from "./session_text.js";
import { show } from "./status.js";
import { nowS, setNow } from "./timeline.js";
import { add } from "./transcript.js";

/** How long the browser may take to find out the length of a file. It knows few formats. */
const LENGTH_TIMEOUT_MS = 5_000;

let controller;

export async function startFile(file) {
  hideMessage();
  controller = new AbortController();
  const { signal } = controller;
  show("file");
  page.progress.hidden = false;
  page.progressName.textContent = file.name;
  showProgress({ sentBytes: 0, totalBytes: file.size, finalUntilS: 0 }, undefined);
  await kept;
  const startS = nowS;
  let text;
  let lengthS;
  /** What the server says of the file. */
  const notes = [];
  lengthOf(file).then((seconds) => {
    lengthS = seconds;
  });
  try {
    await check(file);
    const options = { ...fileOptions(), apiKey: apiKey(), signal, onProgress: (progress) => showProgress(progress, lengthS) };
    for await (const event of transcribeFile(location.origin, file, options)) {
      if (event.type === "warning") {
        warn(event);
        if (event.code !== "no_effect") {
          notes.push(sentence(event));
          showMessage(notes.join(" "));
        }
        continue;
      }
      if (text === undefined) {
        text = new SessionText(startS);
        add({ kind: "file", start_s: startS, end_s: startS, text: file.name });
      }
      text.apply(event);
      setNow(Math.max(nowS, startS + (event.type === "stopped" ? event.audio_s : event.end_s)));
    }
    show("done");
  } catch (error) {
    if (error instanceof AbortedError) {
      show("done");
    } else {
      await explain(error, signal);
      if (!(error instanceof RequestError)) {
        console.info(`${file.name}:`, error);
      }
    }
  } finally {
    text?.end();
    page.progress.hidden = true;
  }
}

/** Ends the upload or the transcription; the text so far stays. */
export function stopFile() {
  controller.abort();
}

function showProgress({ sentBytes, totalBytes, finalUntilS }, lengthS) {
  const isUploading = sentBytes < totalBytes;
  const share = isUploading ? sentBytes / totalBytes : finalUntilS / lengthS;
  if (Number.isFinite(share)) {
    page.progressBar.value = Math.min(1, share);
  } else {
    page.progressBar.removeAttribute("value");
  }
  const until = lengthS === undefined ? clock(finalUntilS) : `${clock(finalUntilS)} of ${clock(lengthS)}`;
  page.progressText.textContent = isUploading ? `Uploading, ${Math.floor(100 * share)} %` : `Transcribed: ${until}`;
}

/** Finds a folder, or a file that is gone: browsers upload neither, and say no more than of a server that is not there. */
async function check(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch (error) {
    throw new UsageError("bad_file", `cannot read ${file.name}`, error);
  }
}

/** The length of the audio in seconds; undefined if the browser does not know the format. */
async function lengthOf(file) {
  const audio = new Audio();
  audio.preload = "metadata";
  audio.src = URL.createObjectURL(file);
  try {
    return await new Promise((resolve) => {
      const timer = setTimeout(() => resolve(undefined), LENGTH_TIMEOUT_MS);
      const settle = (seconds) => {
        clearTimeout(timer);
        resolve(seconds);
      };
      audio.addEventListener("loadedmetadata", () => settle(Number.isFinite(audio.duration) ? audio.duration : undefined));
      audio.addEventListener("error", () => settle(undefined));
    });
  } finally {
    URL.revokeObjectURL(audio.src);
    audio.removeAttribute("src");
  }
}
