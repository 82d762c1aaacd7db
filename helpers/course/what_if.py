"""What if the hardware were other than it is: a kernel's predicted time with one figure of the model changed at a time.

What makes a kernel slow is what it would be faster without. The model of cycles (`model.cycles`) takes a figure for everything a
multiprocessor does; here some of them are changed to what no GPU has, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helpers.arguments import explained
from helpers.errors import CourseError
from helpers.model.predict import Prediction

from .table import Table, Tabular

# In words -> figures of model/cycles/chip.toml.
CHANGES: Mapping[str, Mapping[str, float]] = {
    "registers without banks": {"registers.each": 0},
    "shared memory twice as fast": {"load_store.wavefront": 0.5, "load_store.between_loads": 1},
    "device memory without latency": {"latency.l2": 0, "latency.crowd": 0, "latency.device": 0},
    "L2 cache twice as fast": {
        "load_store.l2_sector": 0.45,
        "load_store.l2_sector_alone": 0.15,
        "load_store.l2_request": 0.8,
        "load_store.l2_request_alone": 0.55,
    },
    "instruction cache for any loop": {"code.lines": 1 << 14},
    "barriers that cost nothing": {"barrier.release": 0, "barrier.arrival": 0},
}


@dataclass(frozen=True, repr=False)
class WhatIf(Tabular):
    """Predictions of one launch. as_it_is: without a change; changed: by what was changed."""

    as_it_is: Prediction
    changed: Mapping[str, Prediction]

    def gain(self, change: str) -> float:
        """How much shorter the launch were: 0.2 is a fifth. Below 0 where it were longer. Raises KeyError for a change not tried."""
        return 1 - self.changed[change].milliseconds / self.as_it_is.milliseconds

    def table(self) -> Table:
        """A row for each change, the most useful first."""
        rows = [["as it is", *_figures(self.as_it_is), ""]]
        for change in sorted(self.changed, key=self.gain, reverse=True):
            more = round(-self.gain(change), 3)
            rows.append([change, *_figures(self.changed[change]), f"{more:+.1%}".replace("-", "−") if more else "the same"])
        below = (
            f"Predicted for {self.as_it_is.gpu}, one change at a time. What two changes bring together is another question.",
            self.as_it_is.error,
        )
        return Table(["what if", "ms", "TFLOPS", "time"], rows, left=(0,), below=below)


def _figures(prediction: Prediction) -> list[str]:
    return [f"{prediction.milliseconds:.4g}", f"{prediction.tflops:.1f}" if prediction.tflops else "–"]


@explained
def what_if(run, *names: str, gpu: str = "H200 SXM", changes: Mapping[str, Mapping[str, float]] = CHANGES) -> WhatIf:
    """What each of `changes` would do to the predicted time of a launch: a second or two of computing for each.

    run: a Run or a profile of one, of a matrix product. names: of those changes that are asked for; without, all. changes: words ->
    figures of model/cycles/chip.toml, as {"my memory": {"latency.l2": 100}}. Raises CourseError where the model of cycles does not know
    this kernel, or there is no such change or figure.
    """
    if not isinstance(changes, Mapping):
        raise CourseError(f"changes={changes!r}: give {{words: figures}}, such as changes={{'my memory': {{'latency.l2': 100}}}}.")
    for name in names:
        if not isinstance(name, str) or name not in changes:
            raise CourseError(f"There is no change {name!r}. There are: {', '.join(changes)}.")
    run = getattr(run, "run", run)
    if not hasattr(run, "predict"):
        raise CourseError(f"what_if wants a run or a profile, as in what_if(naive.profile()), not {type(run).__name__}.")
    base = run.predict(gpu)
    if base.from_counters:
        raise CourseError(f"What changes would do is not known, since {base.from_counters}.")
    return WhatIf(base, {words: run.predict(gpu, changes[words]) for words in names or changes})
