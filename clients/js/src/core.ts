/** The public names of the package that need no browser: React Native gets them as `tutti-asr-client`. */

export type { AudioSource, AudioState } from "./audio_source.js";
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
  SourceEvent,
  SpeakersEvent,
  SpeakerSpan,
  SpeechStartedEvent,
  StartedEvent,
  StartOptions,
  StoppedEvent,
  TranslationEvent,
  TurnEvent,
  UnknownEvent,
  Untranslated,
  UtteranceEvent,
  WarningEvent,
  Word,
} from "./events.js";
export { transcribeFile } from "./file.js";
export type { FileEvent, FileOptions, FileProgress, FileSource } from "./file.js";
export type { BlobLike } from "./form.js";
export type { ApiKey, ConnectOptions } from "./options.js";
export { record } from "./recording.js";
export type { Address } from "./server.js";
export { connect } from "./session.js";
export type { Session } from "./session.js";
export type { Signal } from "./signal.js";
export type { OpenSocket, Socket, SocketEvent, SocketEventType, SocketListener } from "./socket.js";
export { SpeakerTimeline } from "./speakers.js";
export { toSrt, toVtt } from "./subtitles.js";
export type { Subtitle } from "./subtitles.js";
