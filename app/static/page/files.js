/** Ways to give the page a file: the system's dialog, and dropping one anywhere on the page. */

import { onDrop } from "./dropping.js";
import { page } from "./elements.js";
import { showMessage } from "./messages.js";
import { isRunning } from "./status.js";

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
  onDrop((files) => {
    if (files.length === 1) {
      give(files[0], listener);
    } else {
      showMessage(`Expected one file at a time, got ${files.length}.`);
    }
  });
}

function give(file, listener) {
  if (isRunning()) {
    showMessage(`Press Stop before you open ${file.name}.`);
  } else {
    listener(file);
  }
}
