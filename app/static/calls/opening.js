/** Ways to open a call: the system's dialog, and dropping files anywhere on the page. */

import { onDrop } from "../page/dropping.js";
import { page } from "./elements.js";

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
  onDrop(listener);
}

/** Whether a file is a record, by its type or its name. Everything else may be a recording. */
export function isRecord({ name, type }) {
  return type === "application/json" || /\.json$/i.test(name);
}
