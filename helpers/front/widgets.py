"""Sliders and menus around the pictures: they wire, and compute nothing.

`panel(name, run)` is one picture with its controls, `explore(run)` all of them, `compare(before, after)` two runs under one
another, in any picture, `titled({name: panel, …})` several panels, each below its name. What a picture shows and which controls it has
is said in its own file of `views`; here a change of a control leads to a new drawing, and nothing else.

What the reader set is kept per `state` (usually the kernel's name) and picture, so that running the cell again, with a
changed kernel, shows the same line, block and step as far as they still exist.
"""

from __future__ import annotations

import base64
import html
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets

from helpers import still, views
from helpers.arguments import explained, listed
from helpers.errors import CourseError, in_html
from helpers.sim import TraceFilter
from helpers.views.canvas import PICTURES, Choice, Control, NothingToSee, Picture, Span, settle
from helpers.views.given import must_be

# (state, picture, what the cell asked for) -> values since; lives as long as the notebook's kernel. Two cells that ask for
# different things keep different values.
_KEPT: dict[tuple[str, str, str], dict[str, Any]] = {}

_WIDE = {"description_width": "initial"}


def forget(state: str | None = None) -> None:
    """Forget what the reader set, of one state or of all."""
    for key in [key for key in _KEPT if state in (None, key[0])]:
        del _KEPT[key]


class Panel(still.Kept):
    """One picture with its controls. `values` is what they show; `set(step=3)` moves them as a reader would.

    initial: options of the picture. Those that are controls start there, unless the reader has moved them since a cell with
    the same options was first run; the others are passed on as they are.
    """

    def __init__(self, what: Any, picture: Picture, state: str = "", initial: dict[str, Any] | None = None):
        self._what, self._picture = what, picture
        self._fields: dict[str, ipywidgets.Widget] = {}
        self._joined: list[ipywidgets.Widget] = []  # what ties the fields to their players in the page
        self._busy = False
        self._other: Panel | None = None  # one whose controls move with these
        self._links = ipywidgets.HTML()
        self._row = ipywidgets.HBox(layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"))
        self._image = ipywidgets.HTML()
        save = ipywidgets.Button(description="Save picture", icon="download", tooltip="Offer this picture as SVG and PNG",
                                 layout=ipywidgets.Layout(width="auto"))  # fmt: skip
        save.on_click(lambda _: self._guard(self._offer))
        super().__init__([self._row, self._image, ipywidgets.HBox([save, self._links])])
        self._initial = dict(initial or {})
        self._key = (state, picture.name, repr(sorted(self._initial.items())))
        self._wanted = {**self._initial, **_KEPT.get(self._key, {})}
        self._guard(self._redraw)

    def close(self) -> None:
        """Close the panel with all its parts, and let go of what it draws: IPython's `Out` may hold the panel itself."""
        super().close()
        for tie in self._joined:
            still.close(tie)
        self._what = self._other = None
        self._joined, self._initial = [], {}

    @property
    def values(self) -> dict[str, Any]:
        """What the controls show."""
        return {name: field.value for name, field in self._fields.items()}

    @property
    def shown(self) -> str:
        """The HTML on display."""
        return self._image.value

    @property
    def _options(self) -> dict[str, Any]:
        return {**self._initial, **self.values}

    def set(self, **values: Any) -> None:
        """Move controls to `values`; one redrawing. Raises KeyError for a control this picture does not have now."""
        unknown = [name for name in values if name not in self._fields]
        if unknown:
            raise KeyError(f"{self._picture.title} has no control {', '.join(unknown)}; it has {', '.join(self._fields) or 'none'}")
        self._wanted.update(values)
        self._guard(self._redraw)

    def frames(self, most: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The picture as its controls move, one at a time: for pages without a kernel.

        most: values of a control. Returns the controls (name, label, whether it is a slider, the texts of the values, which of them is
        shown now) and the HTML of each frame by "name=index", the one that is shown now by "".
        """
        controls, found = [], {"": self.shown}
        for name, field in self._fields.items():
            slider = isinstance(field, ipywidgets.IntSlider)
            options = [(str(value), value) for value in range(field.min, field.max + 1)] if slider else list(field.options)
            options = _thinned(options, field.index if not slider else field.value - field.min, most)
            at = [value for _, value in options].index(field.value)
            if len(options) < 2:
                continue
            controls.append({
                "name": name, "label": field.description, "slider": slider, "values": [text for text, _ in options], "at": at
            })  # fmt: skip
            for index, (_, value) in enumerate(options):
                if index != at:
                    found[f"{name}={index}"] = self._picture_html({**self._options, name: value})
        return controls, found

    def lead(self, other: Panel | None) -> None:
        """Move the controls of `other` with these, as far as both offer the same; None: no more."""
        self._other = other

    def _changed(self, change) -> None:
        if self._busy:
            return
        moved = change["owner"]
        name = next(name for name, field in self._fields.items() if field is moved)
        self._wanted.update(self.values)
        self._guard(self._redraw)
        if self._other is not None:
            self._other._take(name, moved)

    def _take(self, name: str, moved: ipywidgets.Widget) -> None:
        """Do what a control of another panel did, if this one has the same: a slider, or a menu with the same entries."""
        mine = self._fields.get(name)
        if mine is not None and getattr(mine, "options", None) == getattr(moved, "options", None):
            self.set(**{name: moved.value})

    def _redraw(self) -> None:
        self._links.value = ""
        try:
            controls = self._settled()
        except CourseError:  # the drawing says the same, in place of the picture
            controls = ()
        self._show(controls)
        self._image.value = self._picture_html()
        _KEPT[self._key] = dict(self._wanted)

    def _settled(self) -> tuple[Control, ...]:
        """The controls for what is wanted; asked again until one choice no longer changes the range of another."""
        values: dict[str, Any] = {}
        for _ in range(4):
            controls = tuple(self._picture.controls(self._what, **{**self._initial, **values}))
            settled = settle(controls, self._wanted)
            if settled == values:
                break
            values = settled
        return controls

    def _show(self, controls: tuple[Control, ...]) -> None:
        """Make the fields agree with the controls, without hearing the changes that makes."""
        settled = settle(controls, self._wanted)
        self._busy = True
        try:
            if [control.name for control in controls] != list(self._fields) or not self._fit(controls):
                replaced = (*self._joined, *self._row.children)
                self._joined = []
                self._fields = {control.name: self._field(control) for control in controls}
                self._row.children = tuple(self._with_buttons(control) for control in controls)
                for old in replaced:
                    still.close(old)
            for control in controls:
                field, value = self._fields[control.name], settled[control.name]
                if isinstance(control, Span):
                    # Widen first: a slider refuses a range that is upside down for a moment.
                    field.min, field.max = min(field.min, control.low), max(field.max, control.high)
                    field.min, field.max = control.low, control.high
                    field.disabled = control.low == control.high
                elif tuple(field.options) != control.options:
                    field.options = control.options
                field.value = value
        finally:
            self._busy = False

    def _fit(self, controls: tuple[Control, ...]) -> bool:
        kinds = {Span: ipywidgets.IntSlider, Choice: ipywidgets.Dropdown}
        return all(isinstance(self._fields[control.name], kinds[type(control)]) for control in controls)

    def _field(self, control: Control) -> ipywidgets.Widget:
        if isinstance(control, Span):
            field = ipywidgets.IntSlider(description=control.label, min=control.low, max=max(control.low, control.high), style=_WIDE,
                                         layout=ipywidgets.Layout(width=f"{14 + 0.55 * len(control.label):.0f}em"))  # fmt: skip
        else:
            field = ipywidgets.Dropdown(description=control.label, options=control.options, style=_WIDE,
                                        layout=ipywidgets.Layout(width="auto", max_width="34em"))  # fmt: skip
        field.observe(self._changed, "value")
        return field

    def _with_buttons(self, control: Control) -> ipywidgets.Widget:
        """The field, with buttons for one step back and forward and for playing where the control asks for them."""
        field = self._fields[control.name]
        if not getattr(control, "buttons", False):
            return field
        layout = ipywidgets.Layout(width="2.6em")
        back = ipywidgets.Button(icon="step-backward", tooltip=f"{control.label}: one back", layout=layout)
        forth = ipywidgets.Button(icon="step-forward", tooltip=f"{control.label}: one forward", layout=layout)
        play = ipywidgets.Play(min=field.min, max=field.max, value=field.value, interval=400, show_repeat=False)
        back.on_click(lambda _: setattr(field, "value", max(field.value - 1, field.min)))
        forth.on_click(lambda _: setattr(field, "value", min(field.value + 1, field.max)))
        for name in ("min", "max", "value"):
            self._joined.append(ipywidgets.jslink((field, name), (play, name)))
        return ipywidgets.HBox([field, back, forth, play])

    def _picture_html(self, options: dict[str, Any] | None = None) -> str:
        options = self._options if options is None else options
        if self._picture.html is not None:
            try:
                return self._picture.html(self._what, **options)._repr_html_()
            except CourseError as error:
                return f"<p>{in_html(error.message)}</p>"
        return views.to_html(self._picture.draw(self._what, **options))

    def _offer(self) -> None:
        """Links that save the picture from the browser: nothing is written on the server."""
        ax = self._picture.draw(self._what, **self._options)
        links = []
        for kind, mime, data in (("svg", "image/svg+xml", views.to_svg(ax).encode()), ("png", "image/png", views.to_png(ax))):
            name = html.escape("-".join(part for part in (*self._key[:2], kind) if part).replace(f"-{kind}", f".{kind}"), quote=True)
            links.append(f'<a download="{name}" href="data:{mime};base64,{base64.b64encode(data).decode()}">{name}</a>')
        self._links.value = "&nbsp; ".join(links)

    def _guard(self, work) -> None:
        """Run what a control asked for; what goes wrong is shown where the picture would be, not lost in a log."""
        try:
            work()
        except Exception:  # whatever it is: a callback of a widget has nobody else to raise it to
            text = html.escape(traceback.format_exc())
            self._image.value = f'<p><b>The picture could not be drawn.</b></p><pre style="white-space:pre-wrap">{text}</pre>'


def _thinned(options: list[Any], at: int, most: int) -> list[Any]:
    """At most `most` of the options, evenly spread, the one at `at` among them."""
    if len(options) <= most:
        return options
    if most == 1:
        return [options[at]]
    chosen = {round(i * (len(options) - 1) / (most - 1)) for i in range(most)}
    chosen = chosen - {min(chosen, key=lambda index: abs(index - at))} | {at}
    return [options[index] for index in sorted(chosen)]


@explained
def panel(name: str, what: Any, state: str | None = None, **initial: Any) -> Panel:
    """One picture of a run, with its controls set to `initial` (else to what the reader set before under `state`).

    Raises CourseError for a picture that does not exist, for what it does not draw, and for a state that is no text: a picture's second
    thing has a name.
    """
    if not isinstance(name, str) or name not in PICTURES:
        raise CourseError(f"There is no picture {name!r}. There are: {', '.join(PICTURES)}.")
    if not (state is None or isinstance(state, str)):
        raise CourseError(
            f"widgets.{name} draws one thing, and was given a {type(state).__name__} behind it. If the picture takes a second, "
            "name it: right=…"
        )
    PICTURES[name].must_draw(what, **initial)
    return Panel(what, PICTURES[name], _state(what, state), initial)


def _state(what: Any, state: str | None) -> str:
    if state is not None:
        return state
    kernel = getattr(what, "kernel", None)
    return kernel.compiled.entry if kernel is not None else ""


class Explorer(still.Kept):
    """All pictures of one run: a row of buttons, and the panel of the chosen picture, drawn when it is chosen."""

    def __init__(self, run: Any, state: str, names: list[str], first: str | None, again: Callable[[TraceFilter], Any] | None):
        self._run, self._state_name, self._again = run, state, again
        self._panels: dict[str, Panel] = {}
        wanted = first or _KEPT.get((state, "explore", ""), {}).get("picture")
        names, self._left_out = _worth_seeing(names, [run], first, again is not None)
        self.choice = _pictures_menu(names, wanted)
        self.choice.observe(lambda _: self._open(), "value")
        super().__init__()
        self._open()

    def close(self) -> None:
        """Close all panels, those not on display too."""
        super().close()
        for made in self._panels.values():
            made.close()
        self._panels, self._run, self._again = {}, None, None

    @property
    def panel(self) -> Panel:
        """The panel on display."""
        return self._panels[self.choice.value]

    def opened(self, name: str) -> Panel:
        """The panel of this picture, which stays behind the one on display."""
        if name not in self._panels:
            self._panels[name] = Panel(self._run_for(PICTURES[name]), PICTURES[name], self._state_name)
        return self._panels[name]

    def _open(self) -> None:
        name = self.choice.value
        _KEPT[self._state_name, "explore", ""] = {"picture": name}
        self.children = (self.choice, self.opened(name), *self._left_out)

    def _run_for(self, picture: Picture) -> Any:
        """The run, or one that recorded what this picture needs."""
        if picture.needs is None or self._again is None:
            return self._run
        try:
            return self._again(TraceFilter(**picture.needs))
        except CourseError as error:
            return Failed(error)


class Failed:
    """Stands for a run that could not be made: whatever is asked of it, the answer is why."""

    def __init__(self, error: CourseError):
        self._error = error

    def __getattr__(self, name: str):
        raise self._error


def _worth_seeing(names: list[str], runs: list[Any], asked: str | None, again: bool) -> tuple[list[str], list[ipywidgets.HTML]]:
    """The pictures that have something to show of at least one of `runs`, a line that says why the others are left out, and
    one where what is counted is an estimate.

    asked: the picture that the cell asks for, which stays: it says itself why there is nothing. again: a picture that needs
    another recording can get it.
    """
    kept: list[str] = []
    reasons: dict[str, list[str]] = {}
    for name in names:
        picture = PICTURES[name]
        why = None if name == asked or (again and picture.needs is not None) else _why_not(picture, runs)
        if why is None:
            kept.append(name)
        else:
            reasons.setdefault(why, []).append(picture.title)
    compiled = [getattr(getattr(run, "kernel", None), "compiled", None) for run in runs]
    estimate = next(filter(None, (getattr(each, "estimate", "") for each in compiled)), "")
    notes = [ipywidgets.HTML(f"<small>{html.escape(estimate)}</small>")] if estimate else []
    if not kept or not reasons:
        return kept or names, notes
    said = "<br>".join(f"<b>{html.escape(', '.join(titles))}</b>: {in_html(why)}" for why, titles in reasons.items())
    left_out = html.escape(", ".join(title for titles in reasons.values() for title in titles))
    style = "max-width:70em;line-height:1.4;font-size:.9em;opacity:.8"
    shown = f'<details style="{style}"><summary>Nothing to show here: {left_out}</summary>{said}</details>'
    return kept, [ipywidgets.HTML(shown), *notes]


def _why_not(picture: Picture, runs: list[Any]) -> str | None:
    """Why the picture has nothing to show of any of `runs`: the first one's reason; None if it has."""
    first = None
    for run in runs:
        try:
            picture.controls(run)
        except NothingToSee as reason:
            first = first or reason.message
        except CourseError:  # of the run, not of the picture, which says so
            return None
        else:
            return None
    return first


def _pictures_menu(names: list[str], wanted: str | None) -> ipywidgets.ToggleButtons:
    """A button for each picture, `wanted` or the first of them pressed."""
    return ipywidgets.ToggleButtons(
        options=[(PICTURES[name].title, name) for name in names], value=wanted if wanted in names else names[0],
        tooltips=[_first_sentence(PICTURES[name].draw) for name in names], style={"button_width": "auto"},
    )  # fmt: skip


def _first_sentence(function) -> str:
    return (function.__doc__ or "").strip().split("\n")[0]


@explained
def explore(
    run: Any,
    state: str | None = None,
    picture: str | None = None,
    pictures: list[str] | None = None,
    again: Callable[[TraceFilter], Any] | None = None,
) -> Explorer:
    """The pictures of a run with sliders. picture: the one to open. pictures: only these, in this order.

    again: makes the run once more with another filter, for pictures that need a closer recording.
    """
    must_be("run", "explore", run)
    every = sorted((item for item in PICTURES.values() if item.of == "run"), key=lambda item: item.order)
    names = [item.name for item in every] if pictures is None else list(listed(pictures) or ())
    if not names:
        raise CourseError(f"pictures={pictures!r}: give a list of names, such as ['coalescing', 'owners'].")
    for name in [*names, *([picture] if picture else [])]:
        if name not in [item.name for item in every]:
            raise CourseError(f"There is no picture {name!r} of a run. There are: {', '.join(item.name for item in every)}.")
    return Explorer(run, _state(run, state), names, picture, again)


class Comparison(still.Kept):
    """Two runs under one another in one picture out of a row of them. Moving a control on one side moves it on the other."""

    def __init__(self, runs: dict[str, Any], state: str, names: list[str], first: str, initial: dict[str, Any]):
        self._runs, self._state_name, self._first, self._initial = runs, state, first, initial
        self._sides: dict[str, list[Panel]] = {}
        self._rows: dict[str, ipywidgets.VBox] = {}
        names, self._left_out = _worth_seeing(names, list(runs.values()), first, False)
        wanted = _KEPT.get((state, "compare", first), {}).get("picture", first)
        self.choice = _pictures_menu(names, wanted)
        self.choice.observe(lambda _: self._open(), "value")
        self.together = ipywidgets.Checkbox(value=True, description="move both sides", indent=False)
        self.together.observe(lambda _: self._join(), "value")
        super().__init__()
        self._open()

    def close(self) -> None:
        """Close the panels of all pictures, those not on display too."""
        super().close()
        for row in self._rows.values():
            still.close(row)
        self._sides, self._rows, self._runs = {}, {}, {}

    @property
    def panels(self) -> list[Panel]:
        """Before and after, of the picture on display."""
        return self._sides[self.choice.value]

    def _open(self) -> None:
        name = self.choice.value
        if name not in self._sides:
            own = self._initial if name == self._first else {}
            self._sides[name] = [Panel(run, PICTURES[name], f"{self._state_name}/{side}", own) for side, run in self._runs.items()]
            self._rows[name] = self._row(self._sides[name])
        _KEPT[self._state_name, "compare", self._first] = {"picture": name}
        self._join()
        self.children = (self.choice, self.together, self._rows[name], *self._left_out)

    def _row(self, panels: list[Panel]) -> ipywidgets.VBox:
        """The two panels under one another, each below its name: beside one another their texts would be half as high."""
        sides = [
            ipywidgets.VBox([ipywidgets.HTML(f"<b>{html.escape(side)}</b>"), panel]) for side, panel in zip(self._runs, panels, strict=True)
        ]
        made = ipywidgets.VBox(sides)
        made.add_class("ladder-compare")
        return made

    def _join(self) -> None:
        """Let each side lead the other, or none."""
        left, right = self.panels
        left.lead(right if self.together.value else None)
        right.lead(left if self.together.value else None)


@explained
def compare(before: Any, after: Any, picture: str = "coalescing", state: str = "compare", **initial: Any) -> Comparison:
    """Two runs under one another, before and after a change. picture: the one to open, with these options."""
    every = sorted((item for item in PICTURES.values() if item.of == "run" and item.needs is None), key=lambda item: item.order)
    names = [item.name for item in every]
    if not isinstance(picture, str) or picture not in PICTURES:
        raise CourseError(f"There is no picture {picture!r}. There are: {', '.join(PICTURES)}.")
    for run in (before, after):
        PICTURES[picture].must_draw(run, **initial)
    runs = {f"{place}: {_state(run, None)}": run for place, run in (("before", before), ("after", after))}
    return Comparison(runs, state, names if picture in names else [*names, picture], picture, initial)


@explained
def titled(panels: Mapping[str, Panel]) -> still.Kept:
    """Pictures under one another, of variants for example, each below its name: {"with padding": widgets.banks(run), …}."""
    if not isinstance(panels, Mapping) or not panels or not all(isinstance(name, str) for name in panels):
        raise CourseError(f'titled() takes pictures by their names, as titled({{"before": widgets.banks(run)}}), not {panels!r}.')
    for name, one in panels.items():
        if not isinstance(one, Panel):
            raise CourseError(f"titled() was given a {type(one).__name__} as {name!r}: give a picture, as widgets.banks(run).")
    return still.Kept([part for name, one in panels.items() for part in (ipywidgets.HTML(f"<b>{html.escape(name)}</b>"), one)])


@explained
def ladder(
    size: int | tuple[int, int, int] = 4096, dtype: str = "float32", out_dtype: str = "", *,
    device: str | None = None, state: str = "ladder", until: int | None = None, climbed: bool = False,
) -> Panel:  # fmt: skip
    """The ladder at one size for one pair of element types, with a menu of GPUs and a logarithmic or linear scale.

    size: M = N = K, or (M, N, K).
    dtype, out_dtype: as in `Problem`. device: the one to show first.
    until: only steps up to this number, so that a lesson that asks for a prediction does not show the answer. climbed: and of later steps
    those on which you have a rung here.
    """
    from helpers.course.rungs import rungs  # here: it opens the reader's file, which looking at a run should not

    m, n, k = size if isinstance(size, tuple) else (size, size, size)
    if not isinstance(until, int | None):
        raise CourseError(f"until={until!r}: it is the number of the last step to show, such as until=5.")
    every = rungs(m, n, k, dtype=dtype, out_dtype=out_dtype)
    own = {row.step for row in every if row.mine} if climbed else set()
    rows = [row for row in every if until is None or row.step is None or row.step <= until or row.step in own]
    names = {name.lower(): name for name in {row.device for row in rows}}
    initial = {"device": names[device.lower()]} if device and device.lower() in names else {}
    return panel("ladder", rows, state, **initial)


def __getattr__(name: str):
    """`widgets.coalescing(run)` for every picture: a new picture needs no line here."""
    if name in PICTURES:

        def drawn(what: Any, state: str | None = None, **initial: Any) -> Panel:
            return panel(name, what, state, **initial)

        drawn.__name__ = name
        return explained(drawn)
    raise AttributeError(f"module 'helpers.front.widgets' has no attribute {name!r}")
