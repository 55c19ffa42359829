/** The public names of the package. */

export { Captions } from "./captions.js";
export type { ChannelCaptions, Line, OpenLine } from "./captions.js";
export {
  AbortedError,
  ConnectError,
  ConnectionLost,
  MicrophoneError,
  ProtocolError,
  RequestError,
  SessionError,
  TuttiError,
  UsageError,
} from "./errors.js";
export { parseEvent } from "./events.js";
export type {
  Encoding,
  ErrorEvent,
  FlushedEvent,
  FlushId,
  InterimEvent,
  LagEvent,
  Limits,
  Notice,
  ReconnectingEvent,
  ResumedEvent,
  RoomAddress,
  SegmentEvent,
  ServerEvent,
  SessionEvent,
  SpeechStartedEvent,
  StartedEvent,
  StartOptions,
  StoppedEvent,
  TurnEvent,
  UnknownEvent,
  UtteranceEvent,
  WarningEvent,
  Word,
} from "./events.js";
export { transcribeFile } from "./file.js";
export type { FileEvent, FileOptions, FileProgress, FileSource } from "./file.js";
export { openMicrophone } from "./microphone.js";
export type { Microphone, MicrophoneOptions, MicrophoneState } from "./microphone.js";
export { connect } from "./session.js";
export type { ConnectOptions, Session } from "./session.js";
export type { OpenSocket, Socket, SocketEvent, SocketEventType, SocketListener } from "./socket.js";
export { toSrt, toVtt } from "./subtitles.js";
export type { Subtitle } from "./subtitles.js";
