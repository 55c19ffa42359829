// Measures what a page loads of the package, minified and gzipped, and writes the table into README.md. Modules that are
// only loaded for an option do not count.
// `npm run size` builds the package before. With --check, the table is compared with the sizes, and not written.

import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const ENTRIES = [
  ["`connect`, `Captions`", "index", "{ connect, Captions }"],
  ["`connect`, `Captions`, `openMicrophone`", "index", "{ connect, Captions, openMicrophone }"],
  ["the same and `record`", "index", "{ connect, Captions, openMicrophone, record }"],
  ["`transcribeFile`", "index", "{ transcribeFile }"],
  ["everything", "index", "*"],
  ["`tutti-asr-client/react-native`", "react_native", "*"],
];
/** The most kB of what a page with captions of its microphone loads. */
const LIMIT = 12;
/** The number of entries that the limit is for. */
const N_LIMITED = 2;
const BEGIN = "| imported | kB |\n|---|--:|\n";
/** How far a written size may be from the measured one: other versions of zlib differ a little. */
const TOLERANCE = 0.02;

async function sizeOf(module, names) {
  const { outputFiles, metafile } = await build({
    stdin: { contents: `export ${names} from "./dist/${module}.js"`, resolveDir: import.meta.dirname },
    bundle: true,
    splitting: true,
    outdir: "/",
    metafile: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
  });
  const outputs = Object.entries(metafile.outputs);
  const loaded = new Set(outputs.filter(([, { entryPoint }]) => entryPoint === "<stdin>").map(([path]) => path));
  for (const path of loaded) {
    const needed = metafile.outputs[path].imports.filter(({ kind }) => kind === "import-statement");
    needed.forEach((each) => loaded.add(each.path));
  }
  const files = outputFiles.filter((file) => [...loaded].some((path) => file.path.endsWith(basename(path))));
  return files.reduce((sum, file) => sum + gzipSync(file.contents, { level: 9 }).length, 0) / 1000;
}

const sizes = await Promise.all(ENTRIES.map(([, module, names]) => sizeOf(module, names)));
const largest = Math.max(...sizes.slice(0, N_LIMITED));
if (largest >= LIMIT) {
  console.error(`expected less than ${LIMIT} kB for captions in a page, measured ${largest}`);
  process.exit(1);
}
const readme = readFileSync("README.md", "utf8");
const begin = readme.indexOf(BEGIN) + BEGIN.length;
const end = readme.indexOf("\n\n", begin);
if (process.argv.includes("--check")) {
  const written = readme.slice(begin, end).split("\n").map((row) => Number(row.split("|")[2]));
  const isSame = (size, index) => Math.abs(size - written[index]) <= TOLERANCE * size + 0.05;
  if (written.length !== sizes.length || !sizes.every(isSame)) {
    console.error(`README.md says ${written.join(", ")} kB, measured ${sizes.join(", ")} kB; run \`npm run size\``);
    process.exit(1);
  }
} else {
  const rows = ENTRIES.map(([title], index) => `| ${title} | ${sizes[index].toFixed(1)} |`);
  writeFileSync("README.md", `${readme.slice(0, begin)}${rows.join("\n")}${readme.slice(end)}`);
  console.log(rows.join("\n"));
}
