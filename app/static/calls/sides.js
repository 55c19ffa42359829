/** Finds out whether the two channels of a recording are the two sides of a call, from its beginning. */

/** So much of a file is decoded, in bytes: 24 seconds of a CD's quality, and minutes of most calls. */
const HEAD_BYTES = 4 << 20;
/** Some formats have their table at the end: these files are decoded whole up to this size, in bytes. */
const WHOLE_BYTES = 16 << 20;
/** The rate at which the channels are compared, in Hz. */
const RATE = 8_000;
/** The length of the frames in which they are compared, in samples: 50 ms. */
const FRAME = RATE / 20;
/** Below this mean square, which is -50 dBFS, nobody speaks in a frame. */
const QUIET = 1e-5;
/** A channel has a frame for itself if the mean square of the other one is less than this share of its own. */
const LEAK = 0.1;
/** Each side has so many frames for itself, half a second of them, and both this share of the frames with sound. */
const LEAST_FRAMES = 10;
const LEAST_SHARE = 0.5;

/** The names of the two sides; none if the recording has more or fewer channels, or two that are much alike. */
export async function sidesOf(file) {
  const buffer = await decoded(file);
  const areSides = buffer?.numberOfChannels === 2 && areDifferent(buffer.getChannelData(0), buffer.getChannelData(1));
  return areSides ? ["Side 1", "Side 2"] : [];
}

/** The beginning of the sound; undefined if the browser cannot decode it. */
async function decoded(file) {
  for (const part of [file.slice(0, HEAD_BYTES), ...(file.size > HEAD_BYTES && file.size <= WHOLE_BYTES ? [file] : [])]) {
    try {
      return await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await part.arrayBuffer());
    } catch {
      // The server knows more formats than a browser.
    }
  }
  return undefined;
}

function areDifferent(left, right) {
  let n = 0;
  const own = [0, 0];
  for (let at = 0; at + FRAME <= left.length; at += FRAME) {
    const powers = [power(left, at), power(right, at)];
    const louder = powers[0] >= powers[1] ? 0 : 1;
    if (powers[louder] > QUIET) {
      n += 1;
      own[louder] += powers[1 - louder] < LEAK * powers[louder] ? 1 : 0;
    }
  }
  return Math.min(...own) >= LEAST_FRAMES && own[0] + own[1] >= LEAST_SHARE * n;
}

/** The mean square of a frame. */
function power(samples, at) {
  let sum = 0;
  for (let index = at; index < at + FRAME; index += 1) {
    sum += samples[index] ** 2;
  }
  return sum / FRAME;
}
