// What JupyterLab loads: a module-federation container for the plugin in plugin.js.
//
// JupyterLab runs this script, calls init() with the modules that it and other extensions share, and later get().
// The usual tool chain wraps a bundler's runtime around those two functions; written out they are this file.
import { makePlugin } from "./plugin.js";

const NAME = "gemm-ladder";

let shared = {};

/** Is version `a` older than `b`? Numeric parts only, which is all that shared modules of one release differ in. */
function older(a, b) {
  const [left, right] = [a, b].map((version) => version.split(".").map((part) => parseInt(part, 10) || 0));
  const index = left.findIndex((part, i) => part !== (right[i] ?? 0));
  return index >= 0 && left[index] < (right[index] ?? 0);
}

/** The shared module `name`: the copy in use if one is, else the newest, as for every singleton of JupyterLab. */
async function load(name) {
  const versions = shared[name];
  if (!versions) {
    throw new Error(`${NAME}: this JupyterLab does not share ${name}`);
  }
  const version = Object.keys(versions).reduce((best, next) =>
    !versions[best].loaded && older(best, next) ? next : best,
  );
  const factory = await versions[version].get();
  return factory();
}

window._JUPYTERLAB = window._JUPYTERLAB ?? {};
window._JUPYTERLAB[NAME] = {
  init(scope) {
    shared = scope;
  },
  async get() {
    const plugin = await makePlugin(load);
    return () => ({ __esModule: true, default: plugin });
  },
};
