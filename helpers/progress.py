"""A progress bar for work that takes more than a moment; it appears late, goes away, and says how to stop.

While a cell runs, Jupyter's own interrupt button (■) stops it: the machine ends at the next instruction and leaves
every array as it was.
"""

from __future__ import annotations

import sys
import time

_PATIENCE = 0.7  # seconds before anything is shown


class Progress:
    """Context manager and callback: `with Progress("counting") as progress: work(progress)`; `progress(done, total)`."""

    def __init__(self, what: str):
        self.what = what
        self._bar = None
        self._label = None
        self._box = None
        self._start = 0.0
        self._last = 0.0

    def __enter__(self) -> Progress:
        self._start = time.monotonic()
        return self

    def __exit__(self, kind, error, trace) -> bool:
        if self._box is not None:
            self._box.close()
        elif self._last and sys.stderr.isatty():
            print(file=sys.stderr)
        return False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._start < _PATIENCE or now - self._last < 0.1:
            return
        self._last = now
        elapsed = now - self._start
        text = f"{self.what}: {done} of {total}, {elapsed:.0f} s"
        if 0 < done < total:
            text += f", about {elapsed * (total - done) / done:.0f} s to go"
        if _in_notebook():
            self._show(done, total, text)
        elif sys.stderr.isatty():
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    def _show(self, done: int, total: int, text: str) -> None:
        if self._box is None:
            import ipywidgets
            from IPython.display import display

            self._bar = ipywidgets.IntProgress(max=max(total, 1), layout=ipywidgets.Layout(width="16em"))
            self._label = ipywidgets.Label()
            self._box = ipywidgets.HBox([self._bar, self._label])
            display(self._box)
        self._bar.max, self._bar.value = max(total, 1), done
        self._label.value = f"{text} (■ stops)"


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")
