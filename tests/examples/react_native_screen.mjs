// Runs the screen of examples/react-native with the fakes: presses Start twice, leaves the application once and comes back, and
// presses Stop when all has been spoken. Prints each status, and the lines at the end.

import App from "../../examples/react-native/App.js";
import { leaveAndComeBack, render, whenSpoken } from "react";

let status;
let lines = [];
let buttons;
render(App, ([newStatus, ...newLines], newButtons) => {
  const isEnd = newStatus === "stopped" && status !== undefined && status !== "stopped";
  if (newStatus !== status) {
    console.log(newStatus);
  }
  if (newStatus === "listening" && status === "connecting") {
    setTimeout(leaveAndComeBack, 500);
  }
  [status, lines, buttons] = [newStatus, newLines, newButtons];
  if (isEnd) {
    console.log(JSON.stringify(lines));
  }
});
whenSpoken(() => buttons.get("Stop")());
await Promise.all([buttons.get("Start")(), buttons.get("Start")()]);
