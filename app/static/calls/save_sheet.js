/** The sheet that downloads the record. */

import { download } from "../page/download.js";
import { opens } from "../page/sheets.js";
import { toast } from "../page/toast.js";
import { page } from "./elements.js";
import { FORMATS } from "./exports.js";

let shown;

opens(page.save, page.saveSheet);
for (const button of page.saveSheet.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => save(button.dataset.format));
}

/** Offers this record. The files have the title as their name. */
export function offerDownload(record, title) {
  shown = { record, title };
}

function save(format) {
  const { type, write } = FORMATS[format];
  const name = `${shown.title}.${format}`;
  download(write(shown.record), type, name);
  page.saveSheet.close();
  toast(`Saved as ${name}`);
}
