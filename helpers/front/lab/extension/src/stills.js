// Widgets that outlive their kernel: beside each stands, in the saved notebook, an HTML picture of what it last showed.

const VIEW = "application/vnd.jupyter.widget-view+json";
const SETTLED = 700; // milliseconds without a change, after which the picture is renewed
const PATIENCE = 2000; // milliseconds for a kernel to bring the widget, after which the page says that this is a picture
const NOTE = "<small style='opacity:.7'>As it was last seen. Run the cell to use its controls.</small>";

const escape = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

/** A control as text, the same as helpers/still.py writes: its label and its value. */
function field(view, value) {
  const label = view.querySelector(":scope > .widget-label")?.textContent;
  return `<span style="margin-right:1em">${label ? `${escape(label)}: ` : ""}<b>${escape(value || "–")}</b></span>`;
}

/** The HTML of what `view`, the node of a widget, shows now, without what needs a kernel to answer. */
export function still(view) {
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

/** Let the widgets of `notebook` show their picture while there is no model behind them, and renew it while there is. */
export function keepStills(notebook, Panel) {
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
        return; // only its picture is new
      }
      this.id = id;
      await this.saved.renderModel(model);
      this.live.renderModel(model); // not awaited: where there is no kernel it never ends
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
      this.saved.node.textContent = ""; // the page has each picture once
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
  registry.createRenderer = (type) => (type === VIEW ? new Kept(create(VIEW), create("text/html")) : create(type));
}
