/** The element as a component. React 19 sets attributes of custom elements, and listens to their events. */

import { useRef, useState } from "react";
import type { CaptionLine, CaptionsState, TuttiCaptions } from "tutti-asr-client/element/react";

import "tutti-asr-client/element/react";

/** States in which there is a session to stop. */
const RUNNING: readonly CaptionsState[] = ["asking", "connecting", "live", "reconnecting"];

interface Props {
  readonly server: string;
  readonly spoken?: string;
  /** Called with each line that has become final. */
  readonly onLine?: (line: CaptionLine) => void;
}

/** Captions of the microphone. */
export function Captions({ server, spoken, onLine }: Props) {
  const element = useRef<TuttiCaptions>(null);
  const [state, setState] = useState<CaptionsState>("idle");
  const isRunning = RUNNING.includes(state);
  return (
    <section>
      <button
        disabled={state === "finishing"}
        onClick={() => void (isRunning ? element.current?.stop() : element.current?.start())}
      >
        {isRunning ? "Stop" : "Start"}
      </button>
      <tutti-captions
        ref={element}
        server={server}
        spoken={spoken}
        ontutti-state={(event) => setState(event.detail.state)}
        ontutti-line={(event) => onLine?.(event.detail.line)}
      >
        Press Start and speak.
      </tutti-captions>
    </section>
  );
}
