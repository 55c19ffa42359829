export * from "./core.js";
export { openMicrophone } from "./microphone.js";
