export const LONGEST_MS = 2e9;
export function nowMs() {
    return typeof performance === "undefined" ? Date.now() : performance.now();
}
