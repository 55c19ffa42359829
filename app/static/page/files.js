/** Ways to give the page a file: the system's dialog, and dropping one anywhere on the page. */

import { page } from "./elements.js";
import { showMessage } from "./messages.js";
import { isRunning } from "./status.js";

/** How many files are dragged into how many elements: each element of the page tells on its own. */
let depth = 0;

/** `listener` is called with each file that the user gives. */
export function onFile(listener) {
  page.file.addEventListener("change", () => {
    const [file] = page.file.files;
    // The same file may be chosen again.
    page.file.value = "";
    if (file !== undefined) {
      give(file, listener);
    }
  });
  document.addEventListener("dragenter", (event) => {
    if (hasFiles(event)) {
      depth += 1;
      page.drop.hidden = false;
    }
  });
  document.addEventListener("dragleave", (event) => {
    if (hasFiles(event)) {
      depth -= 1;
      page.drop.hidden = depth <= 0;
    }
  });
  document.addEventListener("dragover", (event) => {
    if (hasFiles(event)) {
      event.preventDefault();
    }
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) {
      return;
    }
    event.preventDefault();
    depth = 0;
    page.drop.hidden = true;
    if (event.dataTransfer.files.length !== 1) {
      showMessage(`Expected one file at a time, got ${event.dataTransfer.files.length}.`);
      return;
    }
    give(event.dataTransfer.files[0], listener);
  });
}

function give(file, listener) {
  if (isRunning()) {
    showMessage(`Press Stop before you open ${file.name}.`);
  } else {
    listener(file);
  }
}

function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files") ?? false;
}
