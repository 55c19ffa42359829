/** The sheet with code that does with the server what the page does, with the page's options. */

import { copyAndTell } from "./clipboard.js";
import { page } from "./elements.js";
import { apiKey } from "./keys.js";
import { fileOptions, sessionOptions } from "./options.js";
import { settings } from "./settings.js";
import { opens } from "./sheets.js";

const KEY = "YOUR_API_KEY";
/** The most speakers that the server tells apart. */
const MAX_SPEAKERS = 10;
const WRITERS = { python, javascript, curl };

for (const button of [page.showCode, page.showCodeToo]) {
  opens(button, page.codeSheet, showCode);
}
for (const choice of choices()) {
  choice.addEventListener("change", showCode);
}
page.copyCode.addEventListener("click", () => void copyAndTell(page.code.textContent, "Code copied"));

function choices() {
  return page.codeSheet.querySelectorAll("[name=code-language]");
}

function showCode() {
  const { value } = [...choices()].find(({ checked }) => checked);
  page.code.textContent = WRITERS[value]();
  page.codeNote.textContent = value === "javascript" ? "In a page: live captions of the microphone." : noteOfFile();
}

function noteOfFile() {
  const without = settings.translate.length === 0 ? "" : " Without translations: live sessions have them.";
  return `A recording, in any format.${without}`;
}

function python() {
  // These values are written in Python as they are in JSON.
  const options = Object.entries(given(fileOptions())).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const key = apiKey() === undefined ? [] : [`api_key="${KEY}"`];
  const speakers = settings.speakers ? [`max_speakers=${MAX_SPEAKERS}`] : [];
  const values = [JSON.stringify(location.origin), '"talk.mp3"', ...options, ...speakers, ...key];
  return `# pip install tutti-asr-client; until it is on the index, in a checkout: pip install ./clients/python
import tutti
import tutti.sync

events = tutti.sync.transcribe_file(
${values.map((value) => `    ${value},\n`).join("")})
for event in events:
    if isinstance(event, tutti.Segment):
        print(f"{event.start_s:.2f} ${settings.speakers ? "{event.speaker}: " : ""}{event.text.strip()}")
`;
}

function javascript() {
  const start = JSON.stringify(given(sessionOptions()), undefined, 2).replaceAll("\n", "\n  ");
  const key = apiKey() === undefined ? "" : `  apiKey: "${KEY}",\n`;
  return `import { openMicrophone, record } from "${location.origin}/static/tutti/index.js";

// Call this from a click.
const session = await record("${location.origin}", await openMicrophone(), {
${key}  start: ${start},
});
for await (const event of session) {
  if (event.type === "utterance") console.log(event.text);
}
`;
}

function curl() {
  const { language, languages = [], hotwords = [] } = given(fileOptions());
  const fields = [
    "file=@talk.mp3",
    ...(language === undefined ? [] : [`language=${language}`]),
    ...languages.map((code) => `languages=${code}`),
    ...(hotwords.length === 0 ? [] : [`hotwords=${hotwords.join(",")}`]),
    `response_format=${settings.speakers ? "diarized_json" : "verbose_json"}`,
  ];
  const key = apiKey() === undefined ? [] : [`-H ${quoted(`Authorization: Bearer ${KEY}`)}`];
  // Values with "@" or "<" at their beginning would be names of files, which only the first field has.
  const forms = fields.map((field, index) => `${index === 0 ? "-F" : "--form-string"} ${quoted(field)}`);
  return ["curl", ...key, ...forms, `${location.origin}/v1/audio/transcriptions`].join(" \\\n  ").concat("\n");
}

/** The options that have a value: without one, the server does the same by default. */
function given(options) {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== null));
}

/** A word of a shell. */
function quoted(text) {
  return /^[\w@=./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
