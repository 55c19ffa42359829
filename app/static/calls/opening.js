/** Ways to open a call: the system's dialog, and dropping files anywhere on the page. */

import { page } from "./elements.js";

/** How many files are dragged into how many elements: each element of the page tells on its own. */
let depth = 0;

/** `listener` is called with the files that the user gives, one or more. */
export function onFiles(listener) {
  for (const input of [page.file, page.recordingFile]) {
    input.addEventListener("change", () => {
      const files = [...input.files];
      // The same file may be chosen again.
      input.value = "";
      if (files.length > 0) {
        listener(files);
      }
    });
  }
  document.addEventListener("dragenter", (event) => count(event, 1));
  document.addEventListener("dragleave", (event) => count(event, -1));
  document.addEventListener("dragover", (event) => {
    if (hasFiles(event)) {
      event.preventDefault();
    }
  });
  document.addEventListener("drop", (event) => {
    if (hasFiles(event)) {
      event.preventDefault();
      depth = 0;
      page.drop.hidden = true;
      listener([...event.dataTransfer.files]);
    }
  });
}

/** Whether a file is a record, by its type or its name. Everything else may be a recording. */
export function isRecord({ name, type }) {
  return type === "application/json" || /\.json$/i.test(name);
}

function count(event, change) {
  if (hasFiles(event)) {
    depth += change;
    page.drop.hidden = depth <= 0;
  }
}

function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files") ?? false;
}
