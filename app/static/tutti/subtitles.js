export function toSrt(segments) {
    return cues(segments, ",")
        .map(([times, text], index) => `${index + 1}\n${times}\n${text.replace(/-{2,}>/g, "->")}\n\n`)
        .join("");
}
export function toVtt(segments) {
    return ["WEBVTT\n\n", ...cues(segments, ".").map(([times, text]) => `${times}\n${escaped(text)}\n\n`)].join("");
}
function cues(segments, point) {
    return [...segments]
        .sort((a, b) => a.start_s - b.start_s)
        .map(({ start_s, end_s, text }) => [times(start_s, end_s, point), oneLine(text)])
        .filter(([, text]) => text !== "");
}
export function times(startS, endS, point) {
    const startMs = Math.round(startS * 1000);
    const endMs = Math.max(Math.round(endS * 1000), startMs + 1);
    return `${clock(startMs, point)} --> ${clock(endMs, point)}`;
}
export function oneLine(text) {
    return text.trim().replace(/\s+/g, " ");
}
function clock(timeMs, point) {
    const seconds = Math.floor(timeMs / 1000);
    const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    return parts.map((part) => String(part).padStart(2, "0")).join(":") + point + String(timeMs % 1000).padStart(3, "0");
}
export function escaped(text) {
    return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
