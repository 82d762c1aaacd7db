"""Kernels to try in the page: variants of the steps' own, compiled when the site is built, executed in the reader's browser.

One entry in TRIALS puts the machine on a lesson's page.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.course.steps import STEPS, Step, get
from helpers.course.sweep import variant
from helpers.errors import CourseError
from helpers.files import write_whole
from helpers.run import gemm, kernel

from .answer import PageMachine, recorded


@dataclass(frozen=True)
class TriedKernel:
    """One kernel. step: whose source it is, "" for the lesson's own. constants: other numbers. edits: other text."""

    name: str
    constants: Mapping[str, int] = field(default_factory=dict)
    edits: Mapping[str, str] = field(default_factory=dict)
    step: str = ""

    def source(self, lesson: Step) -> str:
        """The source. Raises CourseError for an edit whose text is not there."""
        text = variant((get(self.step) if self.step else lesson).kernel_source(), **self.constants)
        for old, new in self.edits.items():
            if old not in text:
                raise CourseError(f"The kernel to be tried as {self.name!r} has no {old!r} any more: mend TRIALS.")
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class PageTrial:
    """What can be tried on a lesson's page. sizes: M = N (and K, unless `depth` says otherwise), the first one shown first."""

    question: str
    variants: Sequence[TriedKernel]
    sizes: Sequence[int]
    depth: int | None = None


_BLOCKS = (
    TriedKernel("32 × 32 threads, as in the lesson"),
    TriedKernel("16 × 16 threads", {"BM": 16, "BN": 16}),
    TriedKernel("8 rows, 32 columns", {"BM": 8}),
    TriedKernel("32 rows, 8 columns", {"BN": 8}),
    TriedKernel("4 rows, 4 columns", {"BM": 4, "BN": 4}),
)
TRIALS: Mapping[str, PageTrial] = {
    "naive": PageTrial(
        "A warp counts along x first, and x runs down the rows here. Which block makes a load of A touch fewer than 32 sectors, and what "
        "does the load of B pay for it?",
        (*_BLOCKS, TriedKernel("step 02, for comparison", step="coalesced")),
        (64, 32, 48, 96),
    ),
    "coalesced": PageTrial(
        "Neighbouring lanes read neighbouring floats. What is left of that when a row of the block is shorter than a warp, or when the "
        "matrix is no multiple of 8 wide?",
        (*_BLOCKS, TriedKernel("step 01, for comparison", step="naive")),
        (64, 32, 33, 96),
    ),
    "shared_tile": PageTrial(
        "Which of these changes puts bank conflicts into a kernel that has none?",
        (
            TriedKernel("as in the lesson"),
            TriedKernel("rows padded by one float", edits={"As[BM][BK]": "As[BM][BK + 1]", "Bs[BK][BN]": "Bs[BK][BN + 1]"}),
            TriedKernel("tile of A transposed", edits={"As[ty][tx]": "As[tx][ty]", "As[ty][k]": "As[k][ty]"}),
            TriedKernel(
                "transposed and padded",
                edits={"As[BM][BK]": "As[BM][BK + 1]", "As[ty][tx]": "As[tx][ty]", "As[ty][k]": "As[k][ty]"},
            ),
            TriedKernel("tiles of 16 × 16", {"BM": 16, "BN": 16, "BK": 16}),
        ),
        (64, 32, 96),
    ),
    "bank_conflicts": PageTrial(
        "Look at the store to As with and without the padding, and at the load of Bs of step 05.",
        (
            TriedKernel("as in the lesson, smaller tiles", {"BM": 64, "BN": 64, "TM": 4}),
            TriedKernel("without padding", {"BM": 64, "BN": 64, "TM": 4, "PAD": 0}),
            TriedKernel("step 05, smaller tiles", {"BM": 64, "BN": 64, "TM": 4}, step="thread_tile_2d"),
        ),
        (64, 128),
        depth=16,
    ),
}


def write(step: Step, folder: Path, live: bool = True) -> str:
    """Compile the trial of a lesson into `folder`, and return the HTML for its page; "" for a lesson without one.

    live: the site has the machine; without it the page shows what was recorded.
    """
    trial = TRIALS.get(step.slug)
    if trial is None:
        return ""
    machine, answers = PageMachine(), {}
    for index, one in enumerate(trial.variants):
        made = kernel.compile(one.source(step), arch=step.target())
        shape = gemm.geometry(made)
        text = recorded(made.compiled, shape.block, shape.tile, trial.depth)
        name = f"{step.name}-{index}"
        write_whole(folder / f"{name}.json", text.encode(), durable=False)
        machine.add(name, text)
        for size in trial.sizes:
            answer = json.loads(machine.ask(json.dumps({"kernel": name, "size": size})))
            answers[f"{name}/{size}"] = {"rows": answer["rows"], "error": answer["error"]}
    return _section(trial, step, answers, live)


_LIVE = """The course's own machine executes them here, in your browser: its first answer takes some seconds and fetches 17 MB, once."""
_STILL = "The machine is not on this site, so what it said then is shown."


def _section(trial: PageTrial, step: Step, answers: Mapping[str, Any], live: bool) -> str:
    kernels = "".join(f'<option value="{step.name}-{i}">{html.escape(one.name)}</option>' for i, one in enumerate(trial.variants))
    sizes = sorted(trial.sizes)
    deep = f", K = {trial.depth}" if trial.depth else " = K"
    data = json.dumps({"sizes": sizes, "answers": answers}).replace("<", "\\u003c")
    return f"""<section class="try" aria-labelledby="try-it">
<h2 id="try-it">Try it in the page</h2>
<p>{html.escape(trial.question)}</p>
<p>The kernels below were compiled when this page was made. {_LIVE if live else _STILL} To edit the source needs a compiler, and that is in
the course, not in a page.</p>
<div class="fields">
<label>Kernel <select data-field="kernel">{kernels}</select></label>
<label>M = N{deep} <input type="range" data-field="size" min="0" max="{len(sizes) - 1}" value="{sizes.index(trial.sizes[0])}">
<output>{trial.sizes[0]}</output></label>
<button type="button" data-field="start"{"" if live else " hidden"}>Start the machine</button>
</div>
<p class="status" role="status">Recorded when this page was made:</p>
<div class="wide"><table><thead><tr><th class="left">access</th><th class="left">line</th><th>requests of block 0</th><th>each costs</th>
<th>needed</th><th>bank conflicts</th></tr></thead><tbody></tbody></table></div>
<div class="fields" data-field="picture" hidden>
<label>Picture <select data-field="place"></select></label>
<label>Warp <input type="range" data-field="warp" min="0" value="0"><output>0</output></label>
<label>Turn <input type="range" data-field="turn" min="0" value="0"><output>0</output></label>
</div>
<div data-field="drawing"></div>
<script type="application/json">{data}</script>
</section>"""


def steps() -> list[Step]:
    """The lessons on whose pages the machine runs."""
    return [step for step in STEPS if step.slug in TRIALS]
