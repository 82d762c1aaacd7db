"""A progress bar with a Stop button for work that takes more than a moment; it appears late and goes away.

Stop is Jupyter's own interrupt (■): the machine ends at the next instruction and leaves every array as it was. While a cell
runs, its kernel hears no clicks, so the course's JupyterLab extension sends the interrupt (`lab/extension/src/stop.js`); without
the extension ■ does the same. Work that a widget started in another thread is told by `stop()`.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from typing import ClassVar

from helpers.errors import CourseError
from helpers.interrupts import delayed

_PATIENCE = 0.7  # seconds before anything is shown
_OFTEN = 0.1  # seconds between two changes


class Progress:
    """Context manager and callback: `with Progress("counting") as progress: work(progress)`; `progress(done, total)`.

    Inside another one it shows nothing of its own: the outer bar stays, and says what the inner one says.
    """

    _shown: ClassVar[list[Progress]] = []

    def __init__(self, what: str):
        self.what = what
        self._outer: Progress | None = None
        self._box = self._shown_as = None
        self._start = self._last = 0.0
        self._thread = 0
        self._open = self._stopped = False

    def __enter__(self) -> Progress:
        self._start = time.monotonic()
        self._thread = threading.get_ident()
        self._open = True
        self._outer = next((item for item in self._shown if item._thread == self._thread), None)
        self._shown.append(self)
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._open = False
        self._shown.remove(self)
        if self._box is not None:
            from . import still  # here: it brings ipywidgets

            still.close(self._box)
            if self._shown_as is not None:  # a saved notebook would keep a view of what is closed
                self._shown_as.update({"text/html": ""}, raw=True)
        elif self._last and self._outer is None and sys.stderr.isatty():
            print(file=sys.stderr)

    def __call__(self, done: int, total: int) -> None:
        """Raises CourseError if the work was stopped and is not the cell's own, which is interrupted instead."""
        top = self._outer or self
        if top._stopped:
            raise CourseError("Stopped.")
        now = time.monotonic()
        if now - top._start < _PATIENCE or now - top._last < _OFTEN:
            return
        top._last = now
        text = self._text(done, total, now - self._start)
        if _in_notebook():
            top._show(text, (done, total) if top is self else None)
        elif sys.stderr.isatty():
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    def _text(self, done: int, total: int, elapsed: float) -> str:
        text = f"{self.what}: {done} of {total}, {elapsed:.0f} s"
        if 0 < done < total:
            text += f", about {elapsed * (total - done) / done:.0f} s to go"
        return text

    def stop(self) -> None:
        """End the work: the reader pressed Stop. Does nothing once it has ended by itself."""
        if not self._open:
            return
        if self._thread == threading.main_thread().ident:
            _thread.interrupt_main()
        else:
            self._stopped = True  # seen at the next call

    def _show(self, text: str, share: tuple[int, int] | None) -> None:
        if self._box is None:
            with delayed():
                import ipywidgets  # here: most work is done before a bar is needed
                from IPython.display import display

            self._bar = ipywidgets.IntProgress(max=1, layout=ipywidgets.Layout(width="16em"))
            self._label = ipywidgets.Label()
            button = ipywidgets.Button(description="Stop", icon="stop", tooltip="Stop this work, like ■ in the toolbar",
                                       layout=ipywidgets.Layout(width="6em"))  # fmt: skip
            button.add_class("gemm-ladder-stop")
            button.on_click(lambda _: self.stop())
            self._box = ipywidgets.HBox([self._bar, button, self._label])
            self._shown_as = display(self._box, display_id=True)
        if share is not None:
            self._bar.max, self._bar.value = max(share[1], 1), share[0]
        self._label.value = text


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")
