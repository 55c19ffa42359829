/** The element as a component. React 19 sets attributes of custom elements, and listens to their events. */

import { useRef, useState } from "react";

import "tutti-asr-client/element";

/** States in which there is a session to stop. */
const RUNNING = ["asking", "connecting", "live", "reconnecting"];

/** Captions of the microphone. `onLine` is called with each line that has become final. */
export function Captions({ server, spoken, onLine }) {
  const element = useRef(null);
  const [state, setState] = useState("idle");
  const isRunning = RUNNING.includes(state);
  return (
    <section>
      <button
        disabled={state === "finishing"}
        onClick={() => (isRunning ? element.current.stop() : element.current.start())}
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
