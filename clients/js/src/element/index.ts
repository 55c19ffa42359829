/** Registers `<tutti-captions>`. Without a browser, as on a server that renders pages, it does nothing. */

import {
  type CaptionsErrorEvent,
  type CaptionsLineEvent,
  type CaptionsStartEvent,
  type CaptionsState,
  type CaptionsStateEvent,
  type CaptionsTexts,
  type CaptionsWarningEvent,
  TuttiCaptions,
} from "./tutti_captions.js";

export { TuttiCaptions };
export type {
  CaptionsErrorEvent,
  CaptionsLineEvent,
  CaptionsStartEvent,
  CaptionsState,
  CaptionsStateEvent,
  CaptionsTexts,
  CaptionsWarningEvent,
};
export type { CaptionsAttributes } from "./attributes.js";
export type { CaptionEvent, EndedEvent, RetractEvent, RoomEvent, Translation } from "./events.js";
export type { CaptionLine, Transcript } from "./transcript.js";

declare global {
  interface HTMLElementTagNameMap {
    "tutti-captions": TuttiCaptions;
  }
  interface HTMLElementEventMap {
    "tutti-start": CaptionsStartEvent;
    "tutti-state": CaptionsStateEvent;
    "tutti-line": CaptionsLineEvent;
    "tutti-warning": CaptionsWarningEvent;
    "tutti-error": CaptionsErrorEvent;
    "tutti-end": CustomEvent<null>;
  }
}

if (globalThis.customElements?.get("tutti-captions") === undefined) {
  globalThis.customElements?.define("tutti-captions", TuttiCaptions);
}
