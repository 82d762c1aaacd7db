// Printed text: JupyterLab breaks its lines anywhere, in the middle of a word, where they are longer than the page is wide.

/** Let lines of printed text go on at a space; within a word only where one is longer than a line. */
export function breakAtSpaces() {
  const style = document.createElement("style");
  style.textContent = ".jp-OutputArea .jp-OutputArea-output pre { word-break: normal; overflow-wrap: anywhere; }";
  document.head.append(style);
}
