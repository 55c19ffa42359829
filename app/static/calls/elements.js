/** The elements of the page and new ones, as on the captions page, and those of drawings. */

export { make, page } from "../page/elements.js";

const SVG = "http://www.w3.org/2000/svg";

/** A new element of a drawing. */
export function draw(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, String(value));
  }
  return element;
}
