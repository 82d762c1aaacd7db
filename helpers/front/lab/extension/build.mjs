// Bundles src/ into the prebuilt extension that JupyterLab loads: npm install --no-package-lock && npm run build
//
// Everything the extension needs from JupyterLab comes from JupyterLab's own shared modules when it starts
// (src/container.js), so there is nothing to bundle but our own lines, and no node_modules of JupyterLab to install.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const out = "../labextensions/gemm-ladder";
const { name, version, description, license } = JSON.parse(readFileSync("package.json", "utf8"));

// The digest lets a test tell, without npm, that the committed build belongs to the committed source.
const digest = createHash("sha256");
for (const file of readdirSync("src").sort()) {
  digest.update(readFileSync(`src/${file}`));
}

await build({
  entryPoints: ["src/container.js"],
  outfile: `${out}/static/remoteEntry.js`,
  bundle: true,
  format: "iife",
  target: "es2020",
  charset: "utf8",
  legalComments: "none",
});

mkdirSync(out, { recursive: true });
const json = (value) => JSON.stringify(value, null, 2) + "\n";
writeFileSync(
  `${out}/package.json`,
  json({
    name,
    version,
    description,
    license,
    jupyterlab: {
      extension: true,
      _build: { load: "static/remoteEntry.js", extension: "./extension" },
    },
    sources: digest.digest("hex"),
  }),
);
writeFileSync(
  `${out}/install.json`,
  json({
    packageManager: "python",
    packageName: "gemm-ladder",
    uninstallInstructions: "Comes with the Python package gemm-ladder: pip uninstall gemm-ladder",
  }),
);
