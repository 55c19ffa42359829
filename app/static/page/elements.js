/** The elements of the page, and new ones. */

const camel = (id) => id.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
/** By their ids in camel case: `page.keyForm` is `#key-form`. */
export const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((each) => [camel(each.id), each]));

/** A new element with classes and a text. The text is data, never markup. */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className !== "") {
    element.className = className;
  }
  element.textContent = text;
  return element;
}
