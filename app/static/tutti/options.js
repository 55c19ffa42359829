import { UsageError } from "./errors.js";
export const CONNECT_TIMEOUT_MS = 40_000;
export const STOP_TIMEOUT_MS = 30_000;
export const HIGH_WATER_BYTES = 512 * 1024;
export const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;
export const RESUME_BUFFER_S = 300;
const MIN_RESUME_BUFFER_S = 60;
export const RESUME_TIMEOUT_MS = 300_000;
export function checkOptions({ resumeBufferS = RESUME_BUFFER_S }) {
    if (resumeBufferS !== 0 && !(resumeBufferS >= MIN_RESUME_BUFFER_S)) {
        const message = `resumeBufferS: expected ${MIN_RESUME_BUFFER_S} or more, or 0, got ${String(resumeBufferS)}`;
        throw new UsageError("bad_option", message);
    }
}
