/** How loud the microphone is. */

const INT16_MAX = 32767;
/** The level bar is empty at this many decibels below full scale. */
const LEVEL_FLOOR_DB = 50;

/** The loudness of a chunk, from 0 to 1 on a logarithmic scale. */
export function level(samples) {
  let peak = 0;
  for (const sample of samples) {
    peak = Math.max(peak, Math.abs(sample));
  }
  const db = 20 * Math.log10(Math.max(1, peak) / INT16_MAX);
  return Math.max(0, Math.min(1, 1 + db / LEVEL_FLOOR_DB));
}
