// Measures what a page loads of the package, minified and gzipped, and writes the table into README.md.
// `npm run size` builds the package before. With --check, the table is compared with the sizes, and not written.

import { readFileSync, writeFileSync } from "node:fs";
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
const BEGIN = "| imported | kB |\n|---|--:|\n";
/** How far a written size may be from the measured one: other versions of zlib differ a little. */
const TOLERANCE = 0.02;

async function sizeOf(module, names) {
  const { outputFiles } = await build({
    stdin: { contents: `export ${names} from "./dist/${module}.js"`, resolveDir: import.meta.dirname },
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
  });
  return gzipSync(outputFiles[0].contents, { level: 9 }).length / 1000;
}

const sizes = await Promise.all(ENTRIES.map(([, module, names]) => sizeOf(module, names)));
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
