/** Copies a line that is clicked. With the keyboard, arrow keys go from line to line and Enter copies. */

import { copyAndTell } from "./clipboard.js";
import { page } from "./elements.js";
import { lineText } from "./exports.js";
import { all } from "./transcript.js";

page.finals.addEventListener("click", (event) => {
  const line = event.target.closest(".line");
  // The end of a selection is a click, too.
  if (line !== null && getSelection().isCollapsed) {
    copyLine(line, event.target.closest("time") !== null);
  }
});

page.transcript.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const line = document.activeElement?.closest("#finals .line") ?? null;
  if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    const lines = [...page.finals.querySelectorAll(".line")];
    const at = line === null ? lines.length : lines.indexOf(line);
    const next = lines[at + (event.key === "ArrowUp" ? -1 : 1)];
    if (next !== undefined) {
      event.preventDefault();
      next.focus({ preventScroll: true });
      next.scrollIntoView({ block: "nearest" });
    }
  } else if (event.key === "Enter" && line !== null) {
    event.preventDefault();
    copyLine(line, event.shiftKey);
  }
});

function copyLine(node, withTime) {
  const entry = all().find(({ n }) => n === Number(node.dataset.entry));
  if (entry !== undefined) {
    void copyAndTell(lineText(entry, "", withTime), withTime ? "Line copied, with its time" : "Line copied");
  }
}
