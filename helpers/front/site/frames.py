"""What a widget shows, recorded while its kernel lives, so that a page without one can step through it.

In the kernel of a lesson: `start()`. From then on the output of every widget also carries a tree of plain JSON:

{"html": …}                                       a text or a picture
{"row": [tree, …]}, {"column": [tree, …]}         side by side, or below one another; "class" is the widget's own
{"choice": [label, …], "at": 0, "parts": […]}     one out of several
{"controls": […], "frames": {…}}                  a picture with its controls: see `widgets.Panel.frames`
"""

from __future__ import annotations

from typing import Any

import ipywidgets
from IPython import get_ipython

from helpers import still
from helpers.front import widgets

MIME = "application/vnd.gemm-ladder.frames+json"
MOST = 4  # frames per control of the picture that is shown first
BEHIND = 1  # per control of those behind it: as it is opened, and no others


def start() -> None:
    """Let every widget that is displayed from now on carry its frames."""
    get_ipython().display_formatter.mimebundle_formatter.for_type(ipywidgets.Widget, _bundle)


def _bundle(widget: ipywidgets.Widget, include=None, exclude=None) -> Any:
    found = widget._repr_mimebundle_()
    data, rest = found if isinstance(found, tuple) else (found, {})
    return {**data, MIME: tree(widget)}, rest


def tree(widget: ipywidgets.Widget, most: int = MOST) -> dict[str, Any]:
    """What `widget` shows now, and what it would show for other values of its controls."""
    if isinstance(widget, widgets.Panel):
        controls, frames = widget.frames(most)
        return {"controls": controls, "frames": frames}
    if isinstance(widget, widgets.Explorer):
        names = [name for _, name in widget.choice.options]
        parts = [tree(widget.opened(name), most if name == widget.choice.value else BEHIND) for name in names]
        labels = [label for label, _ in widget.choice.options]
        left_out = [tree(part) for part in widget.children[2:]]
        return {"column": [{"choice": labels, "at": names.index(widget.choice.value), "parts": parts}, *left_out]}
    if isinstance(widget, widgets.Comparison):
        return {"column": [{"html": f"<p><b>{widget.choice.label}</b></p>"}, *(tree(part) for part in widget.children[2:])]}
    if isinstance(widget, ipywidgets.Box):
        kind = "row" if isinstance(widget, ipywidgets.HBox) else "column"
        made: dict[str, Any] = {kind: [tree(part) for part in widget.children]}
        if widget._dom_classes:
            made["class"] = " ".join(widget._dom_classes)
        return made
    if isinstance(widget, ipywidgets.RadioButtons):
        return {"html": still.choices(widget._options_labels)}
    return {"html": still.still(widget)}
