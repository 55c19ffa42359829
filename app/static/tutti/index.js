/** The public names of the package, in browsers and in Node. */
export * from "./core.js";
export { openMicrophone } from "./microphone.js";
