/** The settings of the page, kept on the device. API keys are not among them. */

import { readJson, write } from "./device.js";

const KEY = "tutti.settings";
const DEFAULTS = {
  /** Where the sound comes from: "microphone", "tab" or "file". */
  source: "microphone",
  /** The id of the microphone; "" is the system's choice. */
  microphone: "",
  /** The code of the language, "" to detect it; undefined until one was chosen. */
  language: undefined,
  /** The codes of the languages that are possible, where the language is detected. Empty: all. */
  candidates: [],
  /** Whether the language is detected once and kept. */
  lock: false,
  /** Whether the server says who speaks each line of live sound. */
  speakers: false,
  /** Names and terms, with commas between them. */
  hotwords: "",
  /** The codes of the languages that the text is translated to. */
  translate: [],
  /** "system", "light" or "dark". */
  theme: "system",
  /** The size of the text in percent. */
  size: 100,
  /** The same in the view with large type. */
  largeSize: 100,
  showTimes: true,
  /** Whether the text stays on the device until it is cleared. */
  keep: true,
  useShortcuts: true,
  /** Whether a text file and the clipboard get the times. */
  withTimes: true,
  /** The name in the link for readers; "": the server makes one. */
  roomName: "",
};

const listeners = [];

export const settings = { ...DEFAULTS, ...known(readJson(KEY)) };

/** Changes some settings, keeps them, and tells the listeners the names of those that are different now. */
export function change(changes) {
  const names = Object.keys(changes).filter((name) => !isSame(settings[name], changes[name]));
  if (names.length > 0) {
    Object.assign(settings, changes);
    // Another tab may have changed others.
    write(KEY, JSON.stringify({ ...settings, ...known(readJson(KEY)), ...changes }));
    listeners.forEach((listener) => listener(names));
  }
}

/** `listener` is called with the names of the settings that have changed. */
export function onChange(listener) {
  listeners.push(listener);
}

/** Those of the kept values that have the right kind. An older or newer page may have kept them. */
function known(kept) {
  const entries = Object.entries(kept ?? {}).filter(([name, value]) => name in DEFAULTS && isKind(name, value));
  return Object.fromEntries(entries);
}

function isKind(name, value) {
  const usual = DEFAULTS[name];
  if (Array.isArray(usual)) {
    return Array.isArray(value) && value.every((each) => typeof each === "string");
  }
  return typeof value === (usual === undefined ? "string" : typeof usual);
}

function isSame(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}
