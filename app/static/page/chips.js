/** A choice of several languages: a list to add one from, and a button for each that is chosen, which removes it. */

import { make } from "./elements.js";
import { languageName } from "./language_names.js";

/**
 * Fills `place`.
 *
 * @param legend what is chosen.
 * @param codes all languages, by code.
 * @param chosen those that are chosen at first.
 * @param onChange is called with the new list.
 */
export function chips(place, { legend, empty, codes, chosen, onChange }) {
  const group = make("fieldset", "chips");
  const list = make("div", "chip-list");
  const select = make("select");
  select.setAttribute("aria-label", `Add: ${legend}`);
  group.append(make("legend", "", legend), list, select);
  place.replaceChildren(group);
  let now = chosen.filter((code) => codes.includes(code));

  const draw = () => {
    list.replaceChildren(...(now.length === 0 ? [make("span", "note", empty)] : now.map(chip)));
    const others = codes.filter((code) => !now.includes(code)).map((code) => new Option(languageName(code), code));
    others.sort((a, b) => a.label.localeCompare(b.label));
    select.replaceChildren(new Option("Add a language…", ""), ...others);
    select.hidden = others.length === 0;
  };
  const become = (next) => {
    now = next;
    draw();
    onChange(now);
  };
  const chip = (code) => {
    const button = make("button", "chip", languageName(code));
    button.type = "button";
    button.setAttribute("aria-label", `Remove ${languageName(code)}`);
    button.addEventListener("click", () => {
      become(now.filter((each) => each !== code));
      select.focus();
    });
    return button;
  };
  select.addEventListener("change", () => {
    if (select.value !== "") {
      become([...now, select.value]);
    }
  });
  draw();
}
