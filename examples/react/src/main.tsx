import { useState } from "react";
import { createRoot } from "react-dom/client";
import type { CaptionLine } from "tutti-asr-client/element/react";

import { Captions } from "./Captions";

/** The address of tutti; `?server=` changes it. */
const SERVER = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:8000";

function App() {
  const [nWords, setNWords] = useState(0);
  const count = (line: CaptionLine) => setNWords((n) => n + line.text.trim().split(/\s+/).length);
  return (
    <main>
      <h1>Captions with React</h1>
      <Captions server={SERVER} spoken="en" onLine={count} />
      <p id="words">{nWords} words</p>
    </main>
  );
}

createRoot(document.querySelector("#app")!).render(<App />);
