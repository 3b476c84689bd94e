// sqlite-lm for better-sqlite3, node:sqlite, Bun and whatever else has loadExtension(path).
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const SUPPORTED = ["@PLATFORMS@"];

function platform() {
  const name = `${process.platform}-${process.arch}`;
  if (process.platform !== "linux") return name;
  const arm = process.arch === "arm64";
  const musl = fs.existsSync(`/lib/ld-musl-${arm ? "aarch64" : "x86_64"}.so.1`) &&
               !fs.existsSync(arm ? "/lib/ld-linux-aarch64.so.1" : "/lib64/ld-linux-x86-64.so.2");
  return musl ? `${name}-musl` : name;
}

/** The path of lm0.so; in an Electron archive, of the copy that is unpacked beside it. */
function getLoadablePath() {
  const here = platform();
  if (!SUPPORTED.includes(here)) {
    throw new Error(`sqlite-lm has no prebuilt extension for ${here}; there is one for ${SUPPORTED.join(", ")}. ` +
                    "Build it from source, and pass its path to loadExtension() yourself.");
  }
  let found;
  try {
    found = require.resolve(`sqlite-lm-${here}/lm0.so`);
  } catch {
    throw new Error(`the package sqlite-lm-${here} is not installed: it is an optional dependency of sqlite-lm, which ` +
                    "npm leaves out with --omit=optional or --no-optional");
  }
  const asar = `app.asar${path.sep}`;
  return found.includes(asar) ? found.replace(asar, `app.asar.unpacked${path.sep}`) : found;
}

/** Loads the extension into a database; node:sqlite's needs {allowExtension: true}. */
function load(db) {
  if (typeof db.enableLoadExtension === "function") db.enableLoadExtension(true);
  db.loadExtension(getLoadablePath());
}

module.exports = { getLoadablePath, load };
