/** New elements. Those of the page are found as on the captions page. */

export { page } from "../page/elements.js";

/** A new element with classes and a text. The text is data, never markup. */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className !== "") {
    element.className = className;
  }
  element.textContent = text;
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** A new element of a drawing. */
export function draw(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, String(value));
  }
  return element;
}
