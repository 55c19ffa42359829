/** The lines of the transcript. */

import { clock } from "./clock.js";
import { page } from "./elements.js";

/** Shows a line of `Captions`. A line that has ended moves from the live lines to the final lines. */
export function showLine(line) {
  const isFinal = "end_s" in line;
  let node = [...page.live.children].find((child) => child.dataset.utterance === String(line.utterance));
  const isBlank = isFinal ? line.text === "" : line.segments + line.stable + line.tail === "";
  if (isFinal) {
    if (!isBlank) {
      // A new node, so that screen readers read it aloud.
      const final = newLine(line);
      final.querySelector(".solid").textContent = line.text;
      if (node !== undefined && node.nextElementSibling !== null) {
        // The final text may be shorter. The line below it must not move.
        final.style.minHeight = node.style.minHeight;
      }
      page.finals.append(final);
    }
    node?.remove();
  } else if (node !== undefined || !isBlank) {
    if (node === undefined) {
      node = newLine(line);
      page.live.append(node);
    }
    node.querySelector(".solid").textContent = line.segments + line.stable;
    node.querySelector(".tail").textContent = line.tail;
    // A line never gets lower, even when its tail gets shorter. Otherwise the lines below it would jump.
    node.style.minHeight = `${node.getBoundingClientRect().height}px`;
  }
  showContents();
}

/** Adds a line in the place of audio that was lost because the connection was away for too long. */
export function showGap([fromS, untilS]) {
  const node = newLine({ utterance: "gap", start_s: fromS });
  node.classList.add("gap");
  node.querySelector(".solid").textContent = `(The audio until ${clock(untilS)} is lost.)`;
  page.finals.append(node);
  showContents();
}

function newLine(line) {
  const node = document.createElement("p");
  node.className = "line";
  node.dataset.utterance = line.utterance;
  const time = document.createElement("time");
  time.textContent = clock(line.start_s);
  time.dateTime = `PT${line.start_s.toFixed(2)}S`;
  const text = document.createElement("span");
  text.className = "text";
  const solid = document.createElement("span");
  solid.className = "solid";
  const tail = document.createElement("span");
  tail.className = "tail";
  text.append(solid, tail);
  node.append(time, text);
  return node;
}

/** Keeps the stable text of open lines when a session has ended, and removes text that might still have changed. */
export function keepOpenLines() {
  for (const node of Array.from(page.live.children)) {
    node.querySelector(".tail").remove();
    node.style.minHeight = "";
    if (node.textContent !== node.querySelector("time").textContent) {
      node.querySelector(".text").classList.add("cut");
      page.finals.append(node);
    }
  }
  page.live.replaceChildren();
  showContents();
}

export function transcript() {
  const lines = [...page.finals.children].map(
    (node) => `[${node.querySelector("time").textContent}] ${node.querySelector(".solid").textContent}`,
  );
  return `${lines.join("\n")}\n`;
}

export function showContents() {
  const isEmpty = page.finals.childElementCount === 0;
  page.empty.hidden = !isEmpty || page.live.childElementCount > 0;
  page.copy.disabled = isEmpty;
  page.clear.disabled = isEmpty;
}
