// "Try it in the page": recorded answers at once, and the machine's own as soon as it runs.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const BLUE = "#0072b2";
const RED = "#b34700";

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function canvas(width, height, label) {
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.append(element("title", {}, label));
  return svg;
}

function sectors(answer) {
  const count = answer.words.length;
  const on = answer.lanes.filter((lane) => lane >= 0).length;
  const said = `${answer.label}: ${on} lanes touch ${count} ${count === 1 ? "sector" : "sectors"} of 32 bytes and use ${answer.used} bytes.`;
  const svg = canvas(704, 240, said);
  const step = 704 / Math.max(1, count);
  const width = Math.min(step * 0.8, 54);
  answer.lanes.forEach((sector, lane) => {
    const x = 22 * lane;
    if (sector >= 0) {
      const centre = (sector + 0.5) * step;
      svg.append(element("line", { x1: x + 11, y1: 22, x2: centre, y2: 90, stroke: BLUE, "stroke-width": 1.2, opacity: 0.6 }));
    }
    svg.append(element("rect", { x: x + 1, y: 0, width: 20, height: 22, rx: 3, fill: sector >= 0 ? BLUE : "none", stroke: BLUE }));
    svg.append(element("text", { x: x + 11, y: 15, "text-anchor": "middle", class: sector >= 0 ? "on-colour" : "" }, String(lane)));
  });
  answer.words.forEach((words, sector) => {
    words.forEach((used, word) => {
      const box = { x: (sector + 0.5) * step - width / 2, y: 92 + 17 * word, width, height: 15, rx: 2 };
      svg.append(element("rect", { ...box, fill: used ? BLUE : "#8888", opacity: used ? 1 : 0.45 }));
    });
  });
  return [svg, said];
}

function banks(answer) {
  const heights = answer.phases.map((phase) => Math.max(1, phase.wavefronts));
  const total = heights.reduce((sum, height) => sum + height, 0);
  const size = Math.min(20, Math.max(5, 400 / total));
  const wavefronts = answer.phases.reduce((sum, phase) => sum + phase.wavefronts, 0);
  const said = `${answer.label}: ${wavefronts} wavefronts in ${answer.phases.length} ${answer.phases.length === 1 ? "phase" : "phases"}. A column is a bank; what stands above the first row of a phase has to wait.`;
  const svg = canvas(704, total * size + 16 * answer.phases.length + 20, said);
  let top = 0;
  answer.phases.forEach((phase, number) => {
    svg.append(element("text", { x: 0, y: top + 11 }, `lanes ${phase.lanes[0]} to ${phase.lanes[1]}: ${phase.wavefronts} ${phase.wavefronts === 1 ? "wavefront" : "wavefronts"}`));
    top += 15 + heights[number] * size;
    for (let bank = 0; bank < 32; bank++) {
      svg.append(element("rect", { x: 22 * bank + 1, y: top - size, width: 20, height: size - 1, fill: "#8888", opacity: 0.4 }));
    }
    for (const [bank, wide, floor, lanes, first] of phase.boxes) {
      const y = top - size * (floor + 1);
      svg.append(element("rect", { x: 22 * bank + 1, y, width: 22 * wide - 2, height: size - 1, rx: 2, fill: floor ? RED : BLUE }));
      if (size >= 12) {
        const name = lanes === 1 ? String(first) : `×${lanes}`;
        svg.append(element("text", { x: 22 * bank + 11 * wide, y: y + size / 2 + 4, "text-anchor": "middle", class: "on-colour" }, name));
      }
    }
    top += 1;
  });
  for (let bank = 0; bank < 32; bank++) {
    svg.append(element("text", { x: 22 * bank + 11, y: top + 14, "text-anchor": "middle" }, String(bank)));
  }
  return [svg, said];
}

document.querySelectorAll(".try").forEach((section) => {
  const data = JSON.parse(section.querySelector("script").textContent);
  const part = (name) => section.querySelector(`[data-field="${name}"]`);
  const status = section.querySelector(".status");
  let worker = null;
  let busy = false;
  let waiting = false;
  let before = null;
  let asked = 0;

  const size = () => data.sizes[part("size").value];
  const number = (value) => (value === null ? "–" : value.toLocaleString("en", { maximumFractionDigits: 2 }));

  function table(rows) {
    section.querySelector("tbody").replaceChildren(
      ...rows.map((row, index) => {
        const line = document.createElement("tr");
        const old = before && before[index];
        const cells = [row.place, `${row.line}  ${row.code}`, number(row.requests), `${number(row.each)} ${row.unit}`, number(row.ideal), number(row.conflicts)];
        cells.forEach((text, column) => {
          const cell = document.createElement("td");
          if (column === 1) {
            const code = document.createElement("code");
            code.textContent = text;
            cell.append(code);
          } else cell.textContent = text;
          if (column < 2) cell.className = "left";
          if (column === 3 && old && old.each !== row.each) cell.className = "changed";
          line.append(cell);
        });
        return line;
      }),
    );
    before = rows;
  }

  function showRecorded() {
    part("size").parentElement.querySelector("output").textContent = size();
    table(data.answers[`${part("kernel").value}/${size()}`].rows);
  }

  function ask() {
    if (!worker) return;
    if (busy) {
      waiting = true;
      return;
    }
    busy = true;
    asked = performance.now();
    worker.postMessage({
      kernel: part("kernel").value, size: size(), place: Number(part("place").value || 0), warp: Number(part("warp").value), turn: Number(part("turn").value),
    });
  }

  function limit(name, count, value) {
    const field = part(name);
    field.max = count - 1;
    field.value = value;
    field.disabled = count < 2;
    field.parentElement.querySelector("output").textContent = value;
  }

  function show(question, answer) {
    table(answer.rows);
    const place = part("place");
    const names = answer.rows.map((row) => `${row.place}, line ${row.line}`);
    if (names.join() !== [...place.options].map((option) => option.textContent).join()) {
      place.replaceChildren(...names.map((name, index) => new Option(name, index)));
      place.value = Math.min(question.place, names.length - 1);
    }
    limit("warp", answer.warps, Math.min(question.warp, answer.warps - 1));
    limit("turn", answer.turns, answer.turn);
    part("picture").hidden = false;
    const [svg, said] = answer.kind === "sectors" ? sectors(answer) : banks(answer);
    const caption = document.createElement("p");
    caption.textContent = said;
    part("drawing").replaceChildren(svg, caption);
    const seconds = (performance.now() - asked) / 1000;
    const right = answer.error === 0 ? "the product is right" : `the product is off by ${answer.error}`;
    status.textContent = `Executed here, in your browser, in ${seconds.toFixed(2)} s: ${right}.`;
    section.dataset.answered = JSON.stringify({ key: `${question.kernel}/${question.size}`, rows: answer.rows, seconds });
  }

  function start() {
    const button = part("start");
    if (typeof Worker === "undefined" || typeof WebAssembly === "undefined" || location.protocol === "file:") {
      status.textContent =
        location.protocol === "file:"
          ? "A page that was opened as a file may not start the machine: serve the folder, for example with python -m http.server. What was recorded stays below."
          : "This browser is too old for the machine: it knows no WebAssembly in a worker. What was recorded stays below.";
      return;
    }
    button.disabled = true;
    worker = new Worker("assets/worker.js");
    worker.onerror = () => fail("the worker could not be started");
    worker.onmessage = (event) => {
      if (event.data.status) {
        status.textContent = event.data.status;
        return;
      }
      if (event.data.failed) {
        fail(event.data.failed);
        return;
      }
      busy = false;
      button.hidden = true;
      show(event.data.question, event.data.answer);
      if (waiting) {
        waiting = false;
        ask();
      }
    };
    status.textContent = "Starting …";
    ask();
  }

  function fail(why) {
    status.textContent = `The machine cannot run here: ${why}. What was recorded when this page was made stays below.`;
    worker.terminate();
    worker = null;
    busy = false;
    part("start").disabled = false;
    part("picture").hidden = true;
    part("drawing").replaceChildren();
    showRecorded();
  }

  part("start").addEventListener("click", start);
  section.addEventListener("input", (event) => {
    const name = event.target.dataset.field;
    if (name === "kernel" || name === "size") {
      if (worker) {
        part("size").parentElement.querySelector("output").textContent = size();
        status.textContent = "Executing …";
      } else showRecorded();
    }
    ask();
  });
  showRecorded();
});
