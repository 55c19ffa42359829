/** Registers `<tutti-captions>`. Without a browser, as on a server that renders pages, it does nothing. */
import { TuttiCaptions, } from "./tutti_captions.js";
export { TuttiCaptions };
if (globalThis.customElements?.get("tutti-captions") === undefined) {
    globalThis.customElements?.define("tutti-captions", TuttiCaptions);
}
