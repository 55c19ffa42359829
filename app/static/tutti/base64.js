const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const VALUES = new Map([...ALPHABET].map((character, value) => [character, value]));
export function base64Bytes(text) {
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
