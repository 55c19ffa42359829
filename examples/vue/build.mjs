/** Bundles the example with esbuild. The compiler of Vue learns that `tutti-captions` is an element and no component. */

import { copyFile, readFile } from "node:fs/promises";

import { build } from "esbuild";
import { compileScript, parse } from "vue/compiler-sfc";

const isCustomElement = (tag) => tag === "tutti-captions";

const vue = {
  name: "vue",
  setup({ onLoad }) {
    onLoad({ filter: /\.vue$/ }, async ({ path }) => {
      const { descriptor, errors } = parse(await readFile(path, "utf8"), { filename: path });
      if (errors.length > 0) {
        return { errors: errors.map((error) => ({ text: error.message, location: { file: path } })) };
      }
      const templateOptions = { compilerOptions: { isCustomElement } };
      const script = compileScript(descriptor, { id: path, inlineTemplate: true, templateOptions });
      return { contents: script.content, loader: script.lang === "ts" ? "ts" : "js" };
    });
  },
};

await build({
  entryPoints: ["src/main.js"],
  outfile: "dist/main.js",
  bundle: true,
  format: "esm",
  minify: true,
  plugins: [vue],
  define: {
    "process.env.NODE_ENV": '"production"',
    __VUE_OPTIONS_API__: "false",
    __VUE_PROD_DEVTOOLS__: "false",
    __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: "false",
  },
});
// The element looks for it beside the bundle.
await copyFile("node_modules/tutti-asr-client/dist/worklet.js", "dist/worklet.js");
