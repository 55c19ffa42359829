/** Forms with a file, as `multipart/form-data` (RFC 7578). Unlike `FormData`, they need no DOM to hold bytes. */

/** A `Blob`, also where TypeScript does not know the DOM. */
export interface BlobLike {
  readonly size: number;
  readonly type: string;
  slice(start?: number, end?: number, type?: string): BlobLike;
}

/** Memory that is not shared, in words that TypeScript before 5.7 knows too: its `Uint8Array` has no parameter. */
export type Bytes = ReturnType<typeof Uint8Array.of>;

/** A form as the body of a request. */
export interface Form {
  readonly contentType: string;
  readonly body: BlobLike | Bytes;
}

/** A form with these fields, and with a file as its last one. The bytes of a `Blob` are read while they are sent. */
export function formOf(
  fields: readonly (readonly [name: string, value: string])[],
  file: BlobLike | Bytes,
  fileName: string,
): Form {
  // None of its lines can be a line of a field or of encoded audio, except by a chance of 1 to 2^100.
  const boundary = Array.from({ length: 4 }, () => Math.random().toString(36).slice(2)).join("");
  const begin = (disposition: string) => `--${boundary}\r\nContent-Disposition: form-data; ${disposition}\r\n`;
  const head =
    fields.map(([name, value]) => `${begin(`name="${name}"`)}\r\n${value}\r\n`).join("") +
    `${begin(`name="file"; filename="${quoted(fileName)}"`)}Content-Type: application/octet-stream\r\n\r\n`;
  const tail = `\r\n--${boundary}--\r\n`;
  const contentType = `multipart/form-data; boundary=${boundary}`;
  if (file instanceof Uint8Array) {
    return { contentType, body: joined(utf8(head), file, utf8(tail)) };
  }
  return { contentType, body: new Blob([head, file as Blob, tail]) };
}

function quoted(fileName: string): string {
  return fileName.replace(/["\r\n]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
}

function joined(...parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The bytes of a text, without a `TextEncoder`. What is half of a character becomes the replacement character. */
function utf8(text: string): Uint8Array {
  const escaped = encodeURIComponent(text.replace(/[\ud800-\udfff]/gu, "\ufffd"));
  const bytes = escaped.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return Uint8Array.from(bytes, (byte) => byte.charCodeAt(0));
}
