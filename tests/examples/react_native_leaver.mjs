// Runs the screen of examples/react-native with the fakes: presses Start, and leaves the screen or presses Stop (the third
// argument) before the session is open. Prints the last status, and whether the microphone is still recorded.

import App from "../../examples/react-native/App.js";
import { render, unmount } from "react";
import { isRecording } from "react-native-live-audio-stream";

let status;
let buttons;
render(App, ([newStatus], newButtons) => {
  [status, buttons] = [newStatus, newButtons];
});
const started = buttons.get("Start")();
if (process.argv[4] === "leave") {
  unmount();
} else {
  buttons.get("Stop")();
}
await Promise.race([started, new Promise((resolve) => setTimeout(resolve, 2_000))]);
console.log(JSON.stringify([status, isRecording()]));
process.exit();
