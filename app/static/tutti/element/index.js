import { TuttiCaptions, } from "./tutti_captions.js";
export { TuttiCaptions };
if (globalThis.customElements?.get("tutti-captions") === undefined) {
    globalThis.customElements?.define("tutti-captions", TuttiCaptions);
}
