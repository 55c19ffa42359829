export { Captions } from "./captions.js";
export { AbortedError, ConnectError, ConnectionLost, MicrophoneError, ProtocolError, RequestError, SessionError, TuttiError, UsageError, } from "./errors.js";
export { parseEvent } from "./events.js";
export { transcribeFile } from "./file.js";
export { record } from "./recording.js";
export { connect } from "./session.js";
export { SpeakerTimeline } from "./speakers.js";
export { toSrt, toVtt } from "./subtitles.js";
