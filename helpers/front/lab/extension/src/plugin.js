// The plugin: a cell whose first line is %%cuda is CUDA C++, any other code cell is what its notebook says.
import { makeLanguage, MAGIC, MIME } from "./language.js";
import { leaveKeysToWidgets, nameSliders } from "./keys.js";
import { waitForKernels } from "./ready.js";
import { keepStills } from "./stills.js";
import { watchStopButtons } from "./stop.js";
import { breakAtSpaces } from "./text.js";

/** Give `cell` the language of its first line, now and after every edit. */
function watchCell(notebook, cell) {
  const update = () => {
    const wanted = MAGIC.test(cell.sharedModel.getSource());
    if (wanted && cell.mimeType !== MIME) {
      cell.mimeType = MIME;
    } else if (!wanted && cell.mimeType === MIME) {
      cell.mimeType = notebook.codeMimetype;
    }
  };
  cell.contentChanged.connect(update);
  cell.mimeTypeChanged.connect(update); // a notebook sets all its cells when its kernel has started
  update();
}

/** Watch every code cell that `notebook` has or gets. */
function watchNotebook(notebook) {
  const seen = new WeakSet();
  const scan = () => {
    for (const cell of notebook.model?.cells ?? []) {
      if (cell.type === "code" && !seen.has(cell)) {
        seen.add(cell);
        watchCell(notebook, cell);
      }
    }
  };
  const open = () => {
    notebook.model?.cells.changed.connect(scan);
    scan();
  };
  notebook.modelChanged.connect(open);
  open();
}

/** The plugin that JupyterLab starts. `load(name)` returns one of JupyterLab's shared modules. */
export async function makePlugin(load) {
  const [notebooks, editors, language, view, common, highlight, lumino] = await Promise.all(
    [
      "@jupyterlab/notebook",
      "@jupyterlab/codemirror",
      "@codemirror/language",
      "@codemirror/view",
      "@lezer/common",
      "@lezer/highlight",
      "@lumino/widgets",
    ].map(load),
  );
  return {
    id: "gemm-ladder:cuda-cells",
    description: "Highlights cells that start with %%cuda, and .cu files, as CUDA C++; Stop buttons interrupt the kernel; cells that are run while it starts wait for it; widgets keep their keys, and what they showed; printed lines break at spaces.",
    autoStart: true,
    requires: [notebooks.INotebookTracker, editors.IEditorLanguageRegistry],
    activate: async (app, tracker, languages) => {
      languages.addLanguage({
        name: "CUDA",
        mime: MIME,
        extensions: ["cu", "cuh"],
        load: async () => {
          const cpp = await languages.getLanguage("C++");
          return makeLanguage(cpp.support, { language, view, common, highlight });
        },
      });
      // Editors ask for a language when their cell's type changes. Loaded beforehand it answers in the order asked.
      await languages.getLanguage(MIME);
      const welcome = (panel) => {
        keepStills(panel.content, lumino.Panel);
        watchNotebook(panel.content);
      };
      tracker.forEach(welcome);
      tracker.widgetAdded.connect((_, panel) => welcome(panel));
      watchStopButtons(tracker);
      waitForKernels(app.commands, tracker);
      leaveKeysToWidgets();
      nameSliders();
      breakAtSpaces();
    },
  };
}
