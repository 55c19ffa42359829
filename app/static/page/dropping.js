/** Lets the user drop files anywhere on the page. */

import { page } from "./elements.js";

/** How many files are dragged into how many elements: each element of the page tells on its own. */
let depth = 0;

/** `listener` is called with the files that the user drops, one or more. */
export function onDrop(listener) {
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

function count(event, change) {
  if (hasFiles(event)) {
    depth += change;
    page.drop.hidden = depth <= 0;
  }
}

function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files") ?? false;
}
