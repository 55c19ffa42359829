/** The options of `connect`, and their defaults. */
import { UsageError } from "./errors.js";
/** Default of `timeoutMs`: a server of several models may need 30 s to load one. */
export const CONNECT_TIMEOUT_MS = 40_000;
/** Default of `stopTimeoutMs`. */
export const STOP_TIMEOUT_MS = 30_000;
/** About 5 s of 48 kHz 16-bit mono. A connection that is so late does not recover in time for captions. */
export const HIGH_WATER_BYTES = 512 * 1024;
/** About 90 s of 48 kHz 16-bit mono. */
export const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;
/** Default of `resumeBufferS`: an utterance of the usual longest length, and minutes without a server. */
export const RESUME_BUFFER_S = 300;
/** The least `resumeBufferS` but 0: less could not hold an utterance of the usual longest length. */
const MIN_RESUME_BUFFER_S = 60;
/** Default of `resumeTimeoutMs`. */
export const RESUME_TIMEOUT_MS = 300_000;
/** @throws UsageError `bad_option` */
export function checkOptions({ resumeBufferS = RESUME_BUFFER_S }) {
    if (resumeBufferS !== 0 && !(resumeBufferS >= MIN_RESUME_BUFFER_S)) {
        const message = `resumeBufferS: expected ${MIN_RESUME_BUFFER_S} or more, or 0, got ${String(resumeBufferS)}`;
        throw new UsageError("bad_option", message);
    }
}
