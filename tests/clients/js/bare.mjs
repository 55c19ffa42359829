// Runs bare_program.mjs in a JavaScript context that has the language, timers, a WebSocket and a small fetch, and nothing
// else: no window, no document, no URL, no Blob, no AbortController. The socket does not tell what the network takes, and
// an answer of fetch cannot be read as it comes, both as in React Native.
// Arguments: the folder of the client's modules, the URL of the server, a file of raw 16-bit PCM at 16 kHz, the speed, and
// the file that is uploaded at the end.

import { readFileSync } from "node:fs";
import { createContext, runInContext, SourceTextModule } from "node:vm";

const [modules, url, audioPath, speed, uploadPath] = process.argv.slice(2);

class BareSocket {
  #socket;
  constructor(address, protocols) {
    this.#socket = new WebSocket(address, [...protocols]);
  }
  send(data) {
    this.#socket.send(data);
  }
  close(code) {
    this.#socket.close(code);
  }
  addEventListener(type, listener) {
    this.#socket.addEventListener(type, listener);
  }
  removeEventListener(type, listener) {
    this.#socket.removeEventListener(type, listener);
  }
}

async function bareFetch(address, { method, headers, body }) {
  const response = await fetch(address, { method, headers: { ...headers }, body: body && Buffer.from(body) });
  return { status: response.status, text: () => response.text() };
}

const context = createContext({
  ...{ setTimeout, clearTimeout, setInterval, clearInterval, WebSocket: BareSocket, fetch: bareFetch },
  host: {
    url,
    speed: Number(speed),
    audio: readFileSync(audioPath),
    file: readFileSync(uploadPath),
    print: (event) => console.log(JSON.stringify(event)),
  },
});

// The only thing that V8 itself adds to the language.
runInContext("delete globalThis.console", context);

const loaded = new Map();
function load(address) {
  if (!loaded.has(address.href)) {
    loaded.set(address.href, new SourceTextModule(readFileSync(address, "utf8"), { context, identifier: address.href }));
  }
  return loaded.get(address.href);
}

const link = (name, from) =>
  load(name === "tutti-asr-client" ? new URL(`file://${modules}/core.js`) : new URL(name, from.identifier));

const program = load(new URL("bare_program.mjs", import.meta.url));
await program.link(link);
await program.evaluate();
