"""Widgets that outlive their kernel, and do not outlive their cell.

A widget is a view of an object in the kernel: after a restart a saved notebook has nothing to show in its place. So
everything the course displays is a `Kept` box, whose output carries an HTML picture of what it shows beside the view. Front
ends without the object (and GitHub, and nbconvert) show the picture; in JupyterLab the course's extension renews it when
the reader moves a control (lab/extension/src/stills.js, which makes the same HTML).

A cell that is run again shows new widgets: `replaced` closes those that it showed before, which nobody sees any more.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

import ipywidgets

_ROW = ' style="display:flex;flex-wrap:wrap;align-items:center"'


def still(widget: ipywidgets.Widget) -> str:
    """The HTML of what `widget` shows now, without what needs a kernel to answer (buttons, players)."""
    if isinstance(widget, ipywidgets.HTML):
        return f"<div>{widget.value}</div>"
    if isinstance(widget, ipywidgets.Box):
        row = _ROW if isinstance(widget, ipywidgets.HBox) else ""
        return f"<div{row}>{''.join(map(still, widget.children))}</div>"
    if isinstance(widget, ipywidgets.Label):
        return f'<span style="margin-right:1em">{html.escape(widget.value, quote=False)}</span>'
    if isinstance(widget, ipywidgets.Dropdown | ipywidgets.RadioButtons | ipywidgets.ToggleButtons):
        return _field(widget.description, widget.label)
    if isinstance(widget, ipywidgets.IntSlider | ipywidgets.Text):
        return _field(widget.description, str(widget.value))
    return ""


def choices(labels: Iterable[str]) -> str:
    """The HTML of what there is to choose from, and not of what somebody chose: for a page or a slide that asks many."""
    return f'<ol type="A">{"".join(f"<li>{html.escape(str(label), quote=False)}</li>" for label in labels)}</ol>'


def _field(label: str, value: str | None) -> str:
    label = f"{html.escape(label, quote=False)}: " if label else ""
    return f'<span style="margin-right:1em">{label}<b>{html.escape(value or "–", quote=False)}</b></span>'


def close(widget: ipywidgets.Widget) -> None:
    """Close a widget and all its parts; one `close()` leaves the parts in the kernel and in the page. A player stops first."""
    if isinstance(widget, ipywidgets.Play) and widget.comm is not None:
        # Its timer runs in the page and would speak of the next step on a channel that is gone. Sent even if nothing is new
        # here: what the page plays may not have been told to a busy kernel yet.
        widget.playing = False
        widget.send_state("playing")
    for part in (*getattr(widget, "children", ()), getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, Kept):
            part.close()
        elif isinstance(part, ipywidgets.Widget):
            close(part)
    ipywidgets.Widget.close(widget)


class Kept(ipywidgets.VBox):
    """A column of widgets whose output keeps a picture of them."""

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        if _running is not None and self not in _shown[_running]:
            _shown[_running].append(self)
        data = super()._repr_mimebundle_(**kwargs)
        bundle = data[0] if isinstance(data, tuple) else data
        bundle["text/html"] = still(self)
        return data

    def close(self) -> None:
        """Close the box with all its parts."""
        close(self)


# ------------------------------------------------------------------------------------------------ the cells that show them

_shown: dict[str, list[Kept]] = {}  # by the cell whose output they are in
_running: str | None = None
_before: list[Kept] = []  # what the running cell showed last time


def cell_begins(info: Any) -> None:
    """IPython's event pre_run_cell: what is displayed from now on belongs to this cell. Front ends that name no cells lose nothing."""
    global _running, _before
    _running = info.cell_id
    _before = _shown.pop(_running, []) if _running is not None else []
    if _running is not None:
        _shown[_running] = []


def cell_ended(result: Any) -> None:
    """IPython's event post_run_cell: close what this cell showed before and nobody shows now."""
    global _running, _before
    for widget in _before:
        if not any(widget is other for shown in _shown.values() for other in shown):
            widget.close()
    _running, _before = None, []
