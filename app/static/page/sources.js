/** Where the sound comes from: a microphone, or the sound of a tab or of the system. */

import { MicrophoneError, openMicrophone } from "../tutti/index.js";
import { toast } from "./toast.js";

/** Sound that was made for listeners is not to be changed. */
const TAB_AUDIO = { autoGainControl: false, echoCancellation: false, noiseSuppression: false };

/** Whether the browser can share the sound of a tab. Phones cannot. */
export const canShareTab = navigator.mediaDevices?.getDisplayMedia !== undefined;

/** Opens the source of the settings, as `openMicrophone` does. Call it from a click. */
export async function openSource({ source, microphone }, signal) {
  if (source === "tab") {
    return openMicrophone({ signal, keepScreenOn: true, openStream: tabOpener() });
  }
  const constraints = microphone === "" ? {} : { deviceId: { ideal: microphone } };
  const opened = await openMicrophone({ signal, keepScreenOn: true, constraints });
  const found = await microphones();
  if (microphone !== "" && !found.some(({ deviceId }) => deviceId === microphone)) {
    toast("The chosen microphone is not there: the system's choice is used");
  }
  return opened;
}

/** The microphones. Browsers tell their names only after the user has allowed one. */
export async function microphones() {
  const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return devices.filter(({ kind, deviceId }) => kind === "audioinput" && deviceId !== "");
}

/** Asks for a tab once. The browser lets a page ask only after a click, so it cannot ask again by itself. */
function tabOpener() {
  let wasAsked = false;
  return async () => {
    if (wasAsked) {
      throw new MicrophoneError("permission_denied", "the sharing of the sound has ended");
    }
    wasAsked = true;
    let stream;
    try {
      // Browsers share sound only together with a picture.
      stream = await navigator.mediaDevices.getDisplayMedia({ video: true, audio: TAB_AUDIO, systemAudio: "include" });
    } catch (error) {
      if (error.name === "NotAllowedError") {
        throw new MicrophoneError("permission_denied", "nothing was shared; choose a tab, a window or the screen", error);
      }
      throw error;
    }
    if (stream.getAudioTracks().length === 0) {
      stream.getTracks().forEach((track) => track.stop());
      throw new MicrophoneError("no_sound", "only a picture was shared; choose a tab, and tick the box that shares its sound");
    }
    stream.getVideoTracks().forEach((track) => track.stop());
    return stream;
  };
}
