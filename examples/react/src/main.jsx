import { useState } from "react";
import { createRoot } from "react-dom/client";

import { Captions } from "./captions.jsx";

/** The address of tutti; `?server=` changes it. */
const SERVER = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:8000";

function App() {
  const [nWords, setNWords] = useState(0);
  const count = (line) => setNWords((n) => n + line.text.trim().split(/\s+/).length);
  return (
    <main>
      <h1>Captions with React</h1>
      <Captions server={SERVER} spoken="en" onLine={count} />
      <p id="words">{nWords} words</p>
    </main>
  );
}

createRoot(document.getElementById("app")).render(<App />);
