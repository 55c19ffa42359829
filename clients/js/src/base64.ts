/** Base64, where the environment may have no `atob` and no `Buffer`. */

import type { Bytes } from "./form.js";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const VALUES = new Map([...ALPHABET].map((character, value) => [character, value]));

/**
 * The bytes of a base64 text. White space and padding may be anywhere, as encoders break lines.
 *
 * @throws TypeError if there is another character.
 */
export function base64Bytes(text: string): Bytes {
  const bytes = new Uint8Array(Math.floor((text.length * 3) / 4));
  let nBytes = 0;
  let bits = 0;
  let nBits = 0;
  for (const character of text) {
    const value = VALUES.get(character);
    if (value === undefined) {
      if (/[\s=]/.test(character)) {
        continue;
      }
      throw new TypeError(`audio of the recorder: expected base64 text, got the character ${JSON.stringify(character)}`);
    }
    bits = ((bits << 6) | value) & 0xffff;
    nBits += 6;
    if (nBits >= 8) {
      nBits -= 8;
      bytes[nBytes++] = bits >> nBits;
    }
  }
  return bytes.slice(0, nBytes);
}
