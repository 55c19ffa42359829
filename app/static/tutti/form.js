export function formOf(fields, file, fileName) {
    const boundary = Array.from({ length: 4 }, () => Math.random().toString(36).slice(2)).join("");
    const begin = (disposition) => `--${boundary}\r\nContent-Disposition: form-data; ${disposition}\r\n`;
    const head = fields.map(([name, value]) => `${begin(`name="${name}"`)}\r\n${value}\r\n`).join("") +
        `${begin(`name="file"; filename="${quoted(fileName)}"`)}Content-Type: application/octet-stream\r\n\r\n`;
    const tail = `\r\n--${boundary}--\r\n`;
    const contentType = `multipart/form-data; boundary=${boundary}`;
    if (file instanceof Uint8Array) {
        return { contentType, body: joined(utf8(head), file, utf8(tail)) };
    }
    return { contentType, body: new Blob([head, file, tail]) };
}
function quoted(fileName) {
    return fileName.replace(/["\r\n]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
}
function joined(...parts) {
    const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return all;
}
function utf8(text) {
    const escaped = encodeURIComponent(text.replace(/[\ud800-\udfff]/gu, "\ufffd"));
    const bytes = escaped.replace(/%(..)/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));
    return Uint8Array.from(bytes, (byte) => byte.charCodeAt(0));
}
