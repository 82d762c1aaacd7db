// Stop buttons: while a cell runs, its kernel hears no clicks on widgets, so the page itself interrupts the kernel.

/** A click on an element of the class gemm-ladder-stop interrupts the kernel of the notebook that shows it. */
export function watchStopButtons(tracker) {
  document.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.closest(".gemm-ladder-stop")) {
      const panel = tracker.find((shown) => shown.node.contains(event.target));
      panel?.sessionContext.session?.kernel?.interrupt();
    }
  });
}
