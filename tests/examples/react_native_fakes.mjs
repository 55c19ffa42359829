// React, React Native and a recorder, as little of them as the example uses. The screen is a list of its texts.

import { readFileSync } from "node:fs";

const CHUNK_BYTES = 3_200;
const [audioPath, chunkMs] = process.argv.slice(2);

// React: one component, whose hooks are known by their order.
const hooks = [];
let nextHook = 0;
let draw = () => {};

const hook = (make) => {
  const index = nextHook++;
  hooks[index] ??= make();
  return hooks[index];
};

export function useState(initial) {
  const state = hook(() => ({ value: initial }));
  const set = (value) => {
    state.value = value;
    draw();
  };
  return [state.value, set];
}

export const useRef = (initial) => hook(() => ({ current: initial }));
export const useEffect = (effect) => void hook(() => ({ end: effect() }));
/** The user leaves the screen. */
export const unmount = () => hooks.forEach(({ end }) => end?.());
export const jsx = (type, props) => ({ type, props });
export const jsxs = jsx;

/** Calls `onScreen` with the texts and the buttons of the component, whenever it changes. */
export function render(component, onScreen) {
  draw = () => {
    nextHook = 0;
    const texts = [];
    const buttons = new Map();
    const visit = (element) => {
      if (Array.isArray(element)) {
        element.forEach(visit);
      } else if (typeof element === "string") {
        texts.push(element);
      } else if (element?.type === "Button") {
        buttons.set(element.props.title, element.props.onPress);
      } else if (element?.type === "Text") {
        texts.push([element.props.children].flat(2).map((child) => child?.props?.children ?? child).join(""));
      } else {
        visit(element?.props?.children ?? []);
      }
    };
    visit(component());
    onScreen(texts, buttons);
  };
  draw();
}

// React Native.
export const [Button, SafeAreaView, ScrollView, Text] = ["Button", "SafeAreaView", "ScrollView", "Text"];
export const Platform = { OS: "android" };
export const PermissionsAndroid = {
  PERMISSIONS: { RECORD_AUDIO: "android.permission.RECORD_AUDIO" },
  request: async () => "granted",
};
let onAppState = () => {};
export const AppState = {
  addEventListener: (_, listener) => {
    onAppState = listener;
    return { remove: () => {} };
  },
};
export const leaveAndComeBack = () => ["background", "active"].forEach((state) => onAppState(state));

// react-native-live-audio-stream: speaks the file, then is quiet.
const audio = readFileSync(audioPath);
let listener = () => {};
let timer;
let at = 0;
export let onSpoken = () => {};
export const whenSpoken = (act) => (onSpoken = act);
/** Whether the recorder has the microphone. */
export const isRecording = () => timer !== undefined;
export default {
  init: ({ sampleRate, channels, bitsPerSample }) => {
    if (sampleRate !== 16_000 || channels !== 1 || bitsPerSample !== 16) {
      throw new Error("the file has 16 kHz, mono, 16 bits");
    }
  },
  on: (_, on) => (listener = on),
  start: () => {
    clearInterval(timer);
    timer = setInterval(() => {
      if (at < audio.length) {
        listener(audio.subarray(at, (at += CHUNK_BYTES)).toString("base64"));
      } else {
        onSpoken();
      }
    }, Number(chunkMs));
  },
  stop: async () => {
    clearInterval(timer);
    timer = undefined;
  },
};
