// Keys in widgets: JupyterLab takes arrows and Enter for the notebook, even from a menu or a button in a cell's output.
// And names of sliders: ipywidgets writes one beside a slider, and tells screen readers nothing of it.

const CONTROL = ".jupyter-widgets select, .jupyter-widgets button, .jupyter-widgets input, .jupyter-widgets [role='slider']";
const KEYS = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown", "Enter", " "]);

/** Leave the keys that move a control to the control that has the focus; all others stay shortcuts. */
export function leaveKeysToWidgets() {
  // The window hears a key before the document, where JupyterLab listens.
  window.addEventListener(
    "keydown",
    (event) => {
      const control = event.target instanceof Element && event.target.matches(CONTROL) ? event.target : null;
      const plain = !event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey;
      control?.toggleAttribute("data-lm-suppress-shortcuts", plain && KEYS.has(event.key));
    },
    true,
  );
}

/** Give the slider that gets the focus the name that stands beside it. */
export function nameSliders() {
  window.addEventListener("focusin", ({ target }) => {
    const slider = target instanceof Element && target.matches(".widget-slider [role='slider']") ? target : null;
    const label = slider?.closest(".widget-slider").querySelector(".widget-label")?.textContent;
    if (label) slider.setAttribute("aria-label", label);
  });
}
