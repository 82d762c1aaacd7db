// CUDA C++ for CodeMirror 6: JupyterLab's C++ grammar, a magic line before it, and CUDA's own words.

export const MIME = "text/x-cuda";

/** The first line of a cell for the course's compiler. */
export const MAGIC = /^\s*%%cuda(?!\w)/;
const MAGIC_LINE = new RegExp(MAGIC.source + ".*");

// CUDA's specifiers, each with C++ of the same length that may stand in its place. The grammar is read through these,
// so that it sees well-formed C++ and neither colours nor folds go astray after the first `__global__`.
const SPECIFIERS = {
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
  __cluster_dims__: "alignas",
};
const SPECIFIER = new RegExp(`\\b(?:${Object.keys(SPECIFIERS).join("|")})\\b`, "g");

// What CUDA adds to C++, by the kind of word it is; and C++'s own types, which JupyterLab's colours leave plain.
const WORDS = [
  ["keyword", [...Object.keys(SPECIFIERS), "asm"].join("|")],
  ["variable", "threadIdx|blockIdx|blockDim|gridDim|warpSize"],
  ["type", "(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]|dim3|(?:__)?(?:half|nv_bfloat16)2?"],
  ["type", "void|bool|char|short|int|long|float|double|signed|unsigned|(?:size|u?int(?:8|16|32|64|ptr))_t"],
  ["function", "__[a-z]\\w*(?=\\s*\\()"],
];
const WORD = new RegExp(`\\b(?:${WORDS.map(([, words]) => `(${words})`).join("|")})\\b`, "g");

/** The text of `input` as the C++ grammar shall read it: the same length, line by line. */
function disguise(input) {
  const text = input
    .read(0, input.length)
    .replace(SPECIFIER, (word) => SPECIFIERS[word].padEnd(word.length));
  return {
    length: text.length,
    lineChunks: false,
    chunk: (from) => text.slice(from),
    read: (from, to) => text.slice(from, to),
  };
}

/** LanguageSupport for CUDA, from that for C++ and JupyterLab's own copies of CodeMirror's modules. */
export function makeLanguage(cpp, { language, view, common, highlight }) {
  const { tags } = highlight;
  const data = language.defineLanguageFacet({ commentTokens: { line: "//", block: { open: "/*", close: "*/" } } });
  const [, cell, magic, body] = new common.NodeSet([
    common.NodeType.none,
    common.NodeType.define({ id: 1, name: "Cell", top: true }),
    common.NodeType.define({ id: 2, name: "Magic" }),
    common.NodeType.define({ id: 3, name: "Body" }),
  ]).extend(highlight.styleTags({ Magic: tags.meta }), language.languageDataProp.add({ Cell: data })).types;

  class BodyParser extends common.Parser {
    createParse(input, fragments, ranges) {
      return cpp.language.parser.createParse(disguise(input), fragments, ranges);
    }
  }

  const bodyParser = new BodyParser();
  const mixed = common.parseMixed((node) => (node.type === body ? { parser: bodyParser } : null));

  // A cell is its magic line, if there is one, and a body. That takes one step; the body's parser does the rest.
  class CellParser extends common.Parser {
    createParse(input, fragments, ranges) {
      const { length } = input;
      const line = MAGIC_LINE.exec(input.read(0, length));
      const end = line ? line[0].length : 0;
      const parts = [
        [magic, 0, end],
        [body, end, length],
      ].filter(([, from, to]) => from < to);
      const tree = new common.Tree(
        cell,
        parts.map(([type, from, to]) => new common.Tree(type, [], [], to - from)),
        parts.map(([, from]) => from),
        length,
      );
      const step = { parsedPos: length, stoppedAt: null, stopAt() {}, advance: () => tree };
      return mixed(step, input, fragments, ranges);
    }
  }

  const cuda = new language.Language(data, new CellParser(), [], "cuda");

  const kinds = {
    keyword: tags.keyword,
    variable: tags.special(tags.variableName),
    type: tags.standard(tags.variableName), // as Python's int and float
    function: tags.standard(tags.function(tags.variableName)),
  };

  function decorate({ state, visibleRanges }) {
    const tree = language.syntaxTree(state);
    const marks = WORDS.map(([kind]) =>
      view.Decoration.mark({ class: `cuda-${kind} ${language.highlightingFor(state, [kinds[kind]]) ?? ""}` }),
    );
    const found = [];
    for (const { from, to } of visibleRanges) {
      for (const match of state.sliceDoc(from, to).matchAll(WORD)) {
        const start = from + match.index;
        if (!/Comment|String|Magic|Include|CharLiteral/.test(tree.resolveInner(start, 1).name)) {
          const kind = match.slice(1).findIndex((word) => word !== undefined);
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
