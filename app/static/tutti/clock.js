export const LONGEST_MS = 2e9;
export function nowMs() {
    return typeof performance === "undefined" ? Date.now() : performance.now();
}
export function clock(seconds) {
    const whole = Math.floor(seconds);
    const parts = [Math.floor(whole / 60) % 60, whole % 60];
    const hours = Math.floor(whole / 3600);
    return (hours > 0 ? [hours, ...parts] : parts)
        .map((part, index) => (index === 0 ? String(part) : String(part).padStart(2, "0")))
        .join(":");
}
