/** The public names of the package. */
export { Captions } from "./captions.js";
export { AbortedError, ConnectError, ConnectionLost, MicrophoneError, ProtocolError, RequestError, SessionError, TuttiError, UsageError, } from "./errors.js";
export { parseEvent } from "./events.js";
export { transcribeFile } from "./file.js";
export { openMicrophone } from "./microphone.js";
export { connect } from "./session.js";
export { toSrt, toVtt } from "./subtitles.js";
