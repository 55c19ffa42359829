import vue from "@vitejs/plugin-vue";
import { defineConfig } from "vite";

/** The compiler of Vue learns that `tutti-captions` is an element and no component. */
const compilerOptions = { isCustomElement: (tag) => tag === "tutti-captions" };

/**
 * Addresses are relative, so that the built page can lie in any folder of a server. `npm run dev` may serve the client of
 * this repository, which lies outside of this folder; a package that npm installed needs no such line.
 */
export default defineConfig({
  base: "./",
  server: { fs: { allow: [".", "../../clients/js"] } },
  plugins: [vue({ template: { compilerOptions } })],
});
