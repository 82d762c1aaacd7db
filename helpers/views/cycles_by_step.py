"""Where the cycles go, from step to step: what warps do with their cycles, a bar for each step, and one for this kernel.

The bars of the steps are those of data/validation.toml: what the model of cycles says of the course's own kernels, or what Nsight Compute
sampled on an H200. This kernel's is predicted now.
"""

from __future__ import annotations

from collections.abc import Mapping

from helpers.model.cycles.multiprocessor import WORDS
from helpers.model.predict import validated

from .canvas import INK, Choice, NothingToSee, heading, in_words, picture
from .warp_states import COLOURS, DEFAULT_GPU, OTHERS, bars, explain, launched, parts, predicted

MODEL, SAMPLED = "states", "sampled"
_SOURCES = (("the model", MODEL), ("Nsight Compute, H200", SAMPLED))
_SIZES = (4096, 1024)


def steps(size: int, source: str = MODEL) -> dict[str, Mapping[str, float]]:
    """Step -> share of its warps' cycles by state, at size³. Empty where none is known."""
    return {name: row[source] for name, row in validated(size).items() if " with " not in name and source in row}


def controls(run, source=None, size=None):
    """Predicted or sampled, and the size of the steps' products."""
    return Choice("source", "steps by", _SOURCES, MODEL), Choice("size", "steps at", tuple((f"{n}³", n) for n in _SIZES), _SIZES[0])


@picture("Cycles by step", controls=controls, size=(12, 7), margins=(2.6, 1.3, 0.4, 1.1), order=99)
def cycles_by_step(run, *, ax, source=MODEL, size: int = _SIZES[0]):
    """What warps do with their cycles, in each step and in this kernel. source: where the steps' bars come from."""
    words = {value: label for label, value in _SOURCES}
    if source not in tuple(words):
        raise NothingToSee(f"source={source!r} is none of {', '.join(words)}.")
    product, known = launched(run), steps(size, source)
    own = predicted(run, DEFAULT_GPU)
    rows = [(in_words(name), states) for name, states in known.items()]
    if own.states:
        rows.append(("this kernel", own.states))
    if not rows:
        raise NothingToSee(f"Nothing is known of the steps at {size}³.")
    seen = bars(ax, rows)
    if own.states and known:
        ax.axhline(len(rows) - 1.5, color=INK, linewidth=1)
    explain(ax, [word for word in (*(WORDS[state] for state in COLOURS), OTHERS) if word in seen], (-0.25, -0.1))
    this = f"this kernel, {product}, by the model for {own.gpu}" if own.states else f"not this kernel: {own.from_counters}"
    heading(ax, "What warps do with their cycles", detail=f"steps at {size}³ by {words[source]}; {this}")
    said = [f"{name}: " + ", ".join(f"{word} {share:.0%}" for word, share in parts(states).items()) for name, states in rows]
    return f"What warps do with their cycles, by step at {size}³, by {words[source]}; this kernel: {product}. " + ". ".join(said) + "."
