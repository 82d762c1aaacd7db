"""The corpus of planted bugs: `bugs/*.cu` as cases, and what the machine says about them.

A file holds many small kernels. Each begins with `//// name: what is wrong` and `//// launch: …`; `#ifdef FIXED`
turns it into its corrected twin without moving a line. Comments say what must be found, where:

    s[t] = x[t];    // @store                   a line that others refer to
    y[t] = s[63-t]; // BUG: race @store         a race between this line and the one marked @store
    s[0] += 1;      // BUG: race self           both sides of the race are this line
    C[i] += x[i];   // MISSED: race             a bug the machine is known not to see

Launch arguments: a number, `null`, `f32[n]`, `f16[n]`, `u16[n]`, `u32[n]` or `i32[n]` (counting up from 0, modulo 16 and halved for floats),
`zero_…` (zeros), `empty_…` (never written by the host), `same1` (the array that argument 1 is), `map_f32[64,32]x[8,32]` (a tensor
map of such an array, with such a box).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helpers.errors import LaunchError, RunError
from helpers.run.kernel import Kernel
from helpers.run.tensor_maps import tensor_map
from helpers.toolchain.compile import compile_source

FOLDER = Path(__file__).parent / "bugs"
DTYPES = {"f32": np.float32, "f16": np.float16, "u32": np.uint32, "u16": np.uint16, "i32": np.int32}
ENDLESS_SECONDS = 2.0  # enough to meet both lines of a wait on a busy machine


@dataclass(frozen=True)
class Launch:
    """grid and block as (x, y, z), dynamic shared memory in bytes, arguments as the corpus writes them."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: tuple[str, ...]

    def arguments(self) -> list:
        """Fresh arrays and scalars."""
        made: list = []
        for text in self.args:
            array = re.fullmatch(r"(zero_|empty_)?(f32|f16|u16|u32|i32)\[(\d+)\]", text)
            if array:
                count = np.arange(int(array[3]))
                values = count if array[2][0] != "f" else count % 16 / 2
                made.append((values * (not array[1])).astype(DTYPES[array[2]]))
            elif tiles := re.fullmatch(r"map_f32\[(\d+),(\d+)\]x\[(\d+),(\d+)\]", text):
                rows, columns, *box = map(int, tiles.groups())
                made.append(tensor_map((np.arange(rows * columns, dtype=np.float32) % 16 / 2).reshape(rows, columns), box))
            elif text == "null":
                made.append(None)
            elif text.startswith("same"):
                made.append(made[int(text[4:])])
            else:
                made.append(int(text))
        return made

    def never_written(self, kernel: Kernel) -> list[str]:
        """Names of the parameters whose arrays the host never writes."""
        return [p.name for p, text in zip(kernel.compiled.parameters, self.args, strict=True) if text.startswith("empty_")]


@dataclass(frozen=True)
class Bug:
    """One planted bug. expected, missed: {(kind, line, other line or None)}; lines are those of `file`."""

    name: str
    file: str
    title: str
    source: str
    launch: Launch
    twin_launch: Launch
    expected: frozenset[tuple[str, int, int | None]]
    missed: frozenset[tuple[str, int, int | None]]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of finding that belong to this bug, seen by the machine or not."""
        return tuple(sorted({kind for kind, _, _ in self.expected | self.missed}))

    def compiled(self, fixed: bool = False, machine_code: bool = True):
        """The kernel or its corrected twin, compiled for an H200; without machine code in half a second less."""
        arch = f"{'sm' if machine_code else 'compute'}_{'90a' if 'wgmma' in self.source else '90'}"
        return compile_source(self.source, arch=arch, options=("-DFIXED",) if fixed else ())

    def run(self, fixed: bool = False) -> set[tuple[str, int | None, int | None]]:
        """What the machine says: {(kind, line, other line)}. A refused launch is ('launch-limit', None, None)."""
        launch = self.twin_launch if fixed else self.launch
        seconds = ENDLESS_SECONDS if self.kinds == ("endless",) and not fixed else 60.0
        kernel = Kernel(self.compiled(fixed))
        try:
            run = kernel.launch(
                launch.grid, launch.block, launch.arguments(), launch.shared, on="cpu", counters=False, seconds=seconds,
                uninitialized=launch.never_written(kernel),
            )  # fmt: skip
        except LaunchError:
            return {("launch-limit", None, None)}
        except RunError as error:
            if not error.findings:
                raise
            found = error.findings
        else:
            found = run.findings
        return {(finding.kind, finding.line, finding.other_line) for finding in found}


def _extent(text: str) -> tuple[int, int, int]:
    numbers = [int(number) for number in text.split(",")]
    return tuple(numbers + [1] * (3 - len(numbers)))


def _launch(text: str) -> Launch:
    head, _, args = text.partition(" args ")
    words = head.split()
    values = dict(zip(words[::2], words[1::2], strict=True))
    return Launch(_extent(values["grid"]), _extent(values["block"]), int(values.get("shared", 0)), tuple(args.split()))


def _marks(lines: dict[int, str], word: str) -> frozenset:
    """What the comments after `word` announce."""
    labels = {match[1]: n for n, text in lines.items() for match in re.finditer(r"// @(\w+)", text)}
    found = set()
    for n, text in lines.items():
        comment = text.partition(f"// {word}: ")[2].partition(" // ")[0]
        for item in comment.split("; ") if comment else ():
            kind, _, other = item.strip().partition(" ")
            found.add((kind, n, n if other == "self" else labels[other[1:]] if other else None))
    return frozenset(found)


def corpus(folder: Path = FOLDER) -> list[Bug]:
    """All cases of a folder, in the order of the files."""
    cases = []
    for path in sorted(folder.glob("*.cu")):
        lines = path.read_text(encoding="utf-8").split("\n")
        starts = [i for i, text in enumerate(lines) if re.match(r"//// (?!launch:|twin:)\w+: ", text)]
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            name, title = lines[start][5:].split(": ", 1)
            settings = {}
            for text in lines[start + 1 : start + 3]:
                if match := re.match(r"//// (launch|twin): (.*)", text):
                    settings[match[1]] = _launch(match[2])
            own = {i + 1: lines[i] for i in range(start, end)}
            expected = _marks(own, "BUG")
            if path.stem == "launches":
                expected = frozenset({("launch-limit", None, None)})
            # Blank lines in front keep the line numbers of the file.
            source = "\n" * start + "\n".join(lines[start:end]) + "\n"
            cases.append(
                Bug(name, path.name, title, source, settings["launch"], settings.get("twin", settings["launch"]),
                    expected, _marks(own, "MISSED"))
            )  # fmt: skip
    return cases


def symmetric(found) -> set[tuple]:
    """Findings without an order of the two lines of a race: it has none."""
    return {(kind, *(sorted((line, other)) if kind == "race" and other is not None else (line, other))) for kind, line, other in found}
