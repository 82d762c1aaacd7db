(() => {
  // src/language.js
  var MIME = "text/x-cuda";
  var MAGIC = /^\s*%%cuda(?!\w)/;
  var MAGIC_LINE = new RegExp(MAGIC.source + ".*");
  var SPECIFIERS = {
    __global__: "static",
    __device__: "static",
    __host__: "static",
    __shared__: "static",
    __constant__: "static",
    __managed__: "static",
    __forceinline__: "inline",
    __noinline__: "static",
    __restrict__: "",
    __grid_constant__: "",
    __align__: "alignas",
    __launch_bounds__: "alignas",
    __cluster_dims__: "alignas"
  };
  var SPECIFIER = new RegExp(`\\b(?:${Object.keys(SPECIFIERS).join("|")})\\b`, "g");
  var WORDS = [
    ["keyword", [...Object.keys(SPECIFIERS), "asm"].join("|")],
    ["variable", "threadIdx|blockIdx|blockDim|gridDim|warpSize"],
    ["type", "(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]|dim3|(?:__)?(?:half|nv_bfloat16)2?"],
    ["type", "void|bool|char|short|int|long|float|double|signed|unsigned|(?:size|u?int(?:8|16|32|64|ptr))_t"],
    ["function", "__[a-z]\\w*(?=\\s*\\()"]
  ];
  var WORD = new RegExp(`\\b(?:${WORDS.map(([, words]) => `(${words})`).join("|")})\\b`, "g");
  function disguise(input) {
    const text = input.read(0, input.length).replace(SPECIFIER, (word) => SPECIFIERS[word].padEnd(word.length));
    return {
      length: text.length,
      lineChunks: false,
      chunk: (from) => text.slice(from),
      read: (from, to) => text.slice(from, to)
    };
  }
  function makeLanguage(cpp, { language, view, common, highlight }) {
    const { tags } = highlight;
    const data = language.defineLanguageFacet({ commentTokens: { line: "//", block: { open: "/*", close: "*/" } } });
    const [, cell, magic, body] = new common.NodeSet([
      common.NodeType.none,
      common.NodeType.define({ id: 1, name: "Cell", top: true }),
      common.NodeType.define({ id: 2, name: "Magic" }),
      common.NodeType.define({ id: 3, name: "Body" })
    ]).extend(highlight.styleTags({ Magic: tags.meta }), language.languageDataProp.add({ Cell: data })).types;
    class BodyParser extends common.Parser {
      createParse(input, fragments, ranges) {
        return cpp.language.parser.createParse(disguise(input), fragments, ranges);
      }
    }
    const bodyParser = new BodyParser();
    const mixed = common.parseMixed((node) => node.type === body ? { parser: bodyParser } : null);
    class CellParser extends common.Parser {
      createParse(input, fragments, ranges) {
        const { length } = input;
        const line = MAGIC_LINE.exec(input.read(0, length));
        const end = line ? line[0].length : 0;
        const parts = [
          [magic, 0, end],
          [body, end, length]
        ].filter(([, from, to]) => from < to);
        const tree = new common.Tree(
          cell,
          parts.map(([type, from, to]) => new common.Tree(type, [], [], to - from)),
          parts.map(([, from]) => from),
          length
        );
        const step = { parsedPos: length, stoppedAt: null, stopAt() {
        }, advance: () => tree };
        return mixed(step, input, fragments, ranges);
      }
    }
    const cuda = new language.Language(data, new CellParser(), [], "cuda");
    const kinds = {
      keyword: tags.keyword,
      variable: tags.special(tags.variableName),
      type: tags.standard(tags.variableName),
      // as Python's int and float
      function: tags.standard(tags.function(tags.variableName))
    };
    function decorate({ state, visibleRanges }) {
      const tree = language.syntaxTree(state);
      const marks = WORDS.map(
        ([kind]) => view.Decoration.mark({ class: `cuda-${kind} ${language.highlightingFor(state, [kinds[kind]]) ?? ""}` })
      );
      const found = [];
      for (const { from, to } of visibleRanges) {
        for (const match of state.sliceDoc(from, to).matchAll(WORD)) {
          const start = from + match.index;
          if (!/Comment|String|Magic|Include|CharLiteral/.test(tree.resolveInner(start, 1).name)) {
            const kind = match.slice(1).findIndex((word) => word !== void 0);
            found.push(marks[kind].range(start, start + match[0].length));
          }
        }
      }
      return view.Decoration.set(found);
    }
    class Words {
      constructor(editor) {
        this.decorations = decorate(editor);
      }
      update(change) {
        const parsed = language.syntaxTree(change.state) !== language.syntaxTree(change.startState);
        if (change.docChanged || change.viewportChanged || parsed) {
          this.decorations = decorate(change.view);
        }
      }
    }
    const words = view.ViewPlugin.fromClass(Words, { decorations: (plugin) => plugin.decorations });
    return new language.LanguageSupport(cuda, [words]);
  }

  // src/keys.js
  var CONTROL = ".jupyter-widgets select, .jupyter-widgets button, .jupyter-widgets input, .jupyter-widgets [role='slider']";
  var KEYS = /* @__PURE__ */ new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown", "Enter", " "]);
  function leaveKeysToWidgets() {
    window.addEventListener(
      "keydown",
      (event) => {
        const control = event.target instanceof Element && event.target.matches(CONTROL) ? event.target : null;
        const plain = !event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey;
        control?.toggleAttribute("data-lm-suppress-shortcuts", plain && KEYS.has(event.key));
      },
      true
    );
  }
  function nameSliders() {
    window.addEventListener("focusin", ({ target }) => {
      const slider = target instanceof Element && target.matches(".widget-slider [role='slider']") ? target : null;
      const label = slider?.closest(".widget-slider").querySelector(".widget-label")?.textContent;
      if (label) slider.setAttribute("aria-label", label);
    });
  }

  // src/ready.js
  var RUNS = /^notebook:run-/;
  var LONGEST = 3e4;
  function waitForKernels(commands, tracker) {
    const execute = commands.execute.bind(commands);
    const waiting = /* @__PURE__ */ new WeakMap();
    commands.execute = (id, args) => {
      const context = tracker.currentWidget?.sessionContext;
      if (!RUNS.test(id) || !context || context.isReady || context.kernelDisplayStatus !== "initializing") {
        return execute(id, args);
      }
      const given = waiting.get(context) ?? /* @__PURE__ */ new Map();
      waiting.set(context, given);
      if (id === "notebook:run-all-cells" && given.has(id)) {
        return given.get(id);
      }
      const late = new Promise((resolve) => setTimeout(resolve, LONGEST));
      const result = Promise.race([context.ready, late]).then(() => {
        given.delete(id);
        return context.isDisposed ? void 0 : execute(id, args);
      });
      given.set(id, result);
      return result;
    };
  }

  // src/stills.js
  var VIEW = "application/vnd.jupyter.widget-view+json";
  var SETTLED = 700;
  var PATIENCE = 2e3;
  var NOTE = "<small style='opacity:.7'>As it was last seen. Run the cell to use its controls.</small>";
  var escape = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
  function field(view, value) {
    const label = view.querySelector(":scope > .widget-label")?.textContent;
    return `<span style="margin-right:1em">${label ? `${escape(label)}: ` : ""}<b>${escape(value || "–")}</b></span>`;
  }
  function still(view) {
    const is = (name) => view.classList.contains(name);
    if (is("widget-html") || is("widget-htmlmath")) {
      return `<div>${view.querySelector(".widget-html-content, .widget-htmlmath-content")?.innerHTML ?? ""}</div>`;
    }
    if (is("widget-box")) {
      const row = is("widget-hbox") ? ' style="display:flex;flex-wrap:wrap;align-items:center"' : "";
      return `<div${row}>${[...view.children].map(still).join("")}</div>`;
    }
    if (is("widget-slider")) {
      return field(view, view.querySelector(".widget-readout")?.textContent);
    }
    if (is("widget-dropdown")) {
      return field(view, view.querySelector("select").selectedOptions[0]?.textContent);
    }
    if (is("widget-text")) {
      return field(view, view.querySelector("input").value);
    }
    if (is("widget-radio")) {
      return field(view, view.querySelector("input:checked")?.closest("label").textContent.trim());
    }
    if (is("widget-toggle-buttons")) {
      return field(view, view.querySelector(".mod-active")?.textContent.trim());
    }
    if (is("widget-label")) {
      return `<span style="margin-right:1em">${escape(view.textContent)}</span>`;
    }
    return "";
  }
  function keepStills(notebook, Panel) {
    class Kept extends Panel {
      constructor(live, saved) {
        super();
        [this.live, this.saved] = [live, saved];
        this.addWidget(live);
        this.addWidget(saved);
        live.hide();
        this.observer = new MutationObserver(() => this.changed());
        this.observer.observe(live.node, { subtree: true, childList: true, attributes: true, characterData: true });
        live.node.addEventListener("input", () => this.changed());
      }
      dispose() {
        this.observer.disconnect();
        clearTimeout(this.timer);
        super.dispose();
      }
      async renderModel(model) {
        const id = model.data[VIEW].model_id;
        this.model = model;
        if (id === this.id) {
          return;
        }
        this.id = id;
        await this.saved.renderModel(model);
        this.live.renderModel(model);
        setTimeout(() => {
          if (this.view === null && this.saved.node.firstElementChild?.innerHTML) {
            this.saved.node.insertAdjacentHTML("beforeend", NOTE);
          }
        }, PATIENCE);
      }
      get view() {
        return this.live.node.querySelector(":scope > .jupyter-widgets");
      }
      changed() {
        if (this.view === null) {
          return;
        }
        this.saved.hide();
        this.saved.node.textContent = "";
        this.live.show();
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.renew(), SETTLED);
      }
      renew() {
        const { data } = this.model;
        const html = this.view && still(this.view);
        if (html && html !== data["text/html"]) {
          this.model.setData({ data: { ...data, "text/html": html } });
        }
      }
    }
    const registry = notebook.rendermime;
    const create = registry.createRenderer.bind(registry);
    registry.createRenderer = (type) => type === VIEW ? new Kept(create(VIEW), create("text/html")) : create(type);
  }

  // src/stop.js
  function watchStopButtons(tracker) {
    document.addEventListener("click", (event) => {
      if (event.target instanceof Element && event.target.closest(".gemm-ladder-stop")) {
        const panel = tracker.find((shown) => shown.node.contains(event.target));
        panel?.sessionContext.session?.kernel?.interrupt();
      }
    });
  }

  // src/text.js
  function breakAtSpaces() {
    const style = document.createElement("style");
    style.textContent = ".jp-OutputArea .jp-OutputArea-output pre { word-break: normal; overflow-wrap: anywhere; }";
    document.head.append(style);
  }

  // src/plugin.js
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
    cell.mimeTypeChanged.connect(update);
    update();
  }
  function watchNotebook(notebook) {
    const seen = /* @__PURE__ */ new WeakSet();
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
  async function makePlugin(load2) {
    const [notebooks, editors, language, view, common, highlight, lumino] = await Promise.all(
      [
        "@jupyterlab/notebook",
        "@jupyterlab/codemirror",
        "@codemirror/language",
        "@codemirror/view",
        "@lezer/common",
        "@lezer/highlight",
        "@lumino/widgets"
      ].map(load2)
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
          }
        });
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
      }
    };
  }

  // src/container.js
  var NAME = "gemm-ladder";
  var shared = {};
  function older(a, b) {
    const [left, right] = [a, b].map((version) => version.split(".").map((part) => parseInt(part, 10) || 0));
    const index = left.findIndex((part, i) => part !== (right[i] ?? 0));
    return index >= 0 && left[index] < (right[index] ?? 0);
  }
  async function load(name) {
    const versions = shared[name];
    if (!versions) {
      throw new Error(`${NAME}: this JupyterLab does not share ${name}`);
    }
    const version = Object.keys(versions).reduce(
      (best, next) => !versions[best].loaded && older(best, next) ? next : best
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
    }
  };
})();
