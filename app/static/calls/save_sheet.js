/** The sheet that downloads the record. */

import { opens } from "../page/sheets.js";
import { page } from "./elements.js";
import { FORMATS } from "./exports.js";
import { toast } from "./messages.js";

/** How long the browser has to begin with a download. */
const DOWNLOAD_MS = 60_000;

let shown;

opens(page.save, page.saveSheet);
for (const button of page.saveSheet.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => download(button.dataset.format));
}

/** Offers this record. The files have the title as their name. */
export function offerDownload(record, title) {
  shown = { record, title };
}

function download(format) {
  const { type, write } = FORMATS[format];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([write(shown.record)], { type: `${type};charset=utf-8` }));
  link.download = `${shown.title}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), DOWNLOAD_MS);
  page.saveSheet.close();
  toast(`Saved as ${link.download}`);
}
