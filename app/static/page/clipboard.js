/** Puts text on the clipboard. */

/** Returns whether the browser allowed it. */
export async function copy(text) {
  try {
    // `navigator.clipboard` does not exist on pages that are not secure.
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}
