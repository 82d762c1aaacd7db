// The machine, beside the page: Pyodide with NumPy and the course's SIMT machine, all from this site.
"use strict";

let machine = null;
const kernels = new Set();

async function start() {
  importScripts("../pyodide/pyodide.js");
  postMessage({ status: "Fetching Python and the machine (17 MB, once) …" });
  const zip = fetch("../pyodide/machine.zip");
  const python = await loadPyodide({ indexURL: new URL("../pyodide/", self.location.href).href });
  postMessage({ status: "Python is here; NumPy …" });
  await python.loadPackage("numpy", { messageCallback: () => {} });
  const packed = await zip;
  if (!packed.ok) throw new Error(`machine.zip: ${packed.status}`);
  python.unpackArchive(await packed.arrayBuffer(), "zip");
  postMessage({ status: "The machine reads the kernel …" });
  machine = python.runPython("from answer import PageMachine\nPageMachine()");
}

async function ask(question) {
  if (!kernels.has(question.kernel)) {
    const answer = await fetch(`../kernels/${question.kernel}.json`);
    if (!answer.ok) throw new Error(`the kernel could not be fetched: ${answer.status}`);
    machine.add(question.kernel, await answer.text());
    kernels.add(question.kernel);
  }
  return JSON.parse(machine.ask(JSON.stringify(question)));
}

let started = null;

onmessage = async (event) => {
  try {
    if (!started) started = start();
    await started;
    postMessage({ question: event.data, answer: await ask(event.data) });
  } catch (error) {
    postMessage({ failed: String(error.message || error).trim().split("\n").pop() });
  }
};
