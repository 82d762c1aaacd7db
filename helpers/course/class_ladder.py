"""A ladder of a whole class: everybody exports the rungs of their own, and one merges the files.

A file says what was climbed with, source included, so that the rungs can be verified as far as that goes without the machine that they
come from: figures that contradict one another, beat the hardware or do not belong to their source are left out, with the
reason; a predicted one can be predicted again, from the source. That a measured one was measured is the sender's word.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.arguments import explained
from helpers.element_types import ELEMENT_TYPES, named
from helpers.errors import CourseError
from helpers.files import read_whole, write_export
from helpers.model.hardware import digits
from helpers.run.gemm import Problem
from helpers.sim.code.declarations import without_comments

from . import rungs as ladder
from .rungs import Rung
from .store import CLIMBS, COUNTED, PREDICTED, RECORDED, Store, now, own
from .table import Table, Tabular
from .transfer import COURSE, written

WHAT, FORMAT = "class ladder", 1
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "kind": (str,), "label": (str,), "device": (str,), "dtype": (str,), "out_dtype": (str,), "m": (int,), "n": (int,), "k": (int,),
    "milliseconds": (float, int, type(None)), "tflops": (float, int, type(None)), "cublas_ratio": (float, int, type(None)),
    "source": (str,), "source_hash": (str,), "created": (str,),
}  # fmt: skip
_READER = "reader.id"  # the question whose answer tells one reader from another of the same name
_CLOSE = 1e-3  # figures of one climb agree as well as that
_ABOVE = 1.05  # a clock may be a little above the one that a limit is for
_LARGEST, _MOST = 32 << 20, 2000  # bytes of a file, and climbs in it
_LONGEST, _SHORT = 40, 17  # characters of a name, and of one in the picture
_BEYOND = 1 << 63  # whole numbers as large are none of a climb, and the largest of them no float
_PIECES = "float16"  # what a float32 is written as for tensor cores: of its types the fastest
_MATRICES = re.compile(r"\b(?:wgmma|wmma|mma)[.:_]")  # an instruction for tensor cores, or CUDA's functions for it
_AGAIN = 0.01  # a prediction that is made again agrees as well as that


@dataclass(frozen=True)
class ClassClimb:
    """One climb of somebody. rung: its figures, under the kernel's name. verified: what was done to believe it, in a word or two. latest:
    when the same kernel climbed there last, be it slower."""

    person: str
    rung: Rung
    source: str = field(repr=False)
    verified: str = ""
    latest: str = ""


@explained
def export(path: Path, name: str, store: Store | None = None) -> int:
    """Write the reader's climbs to a file under a name, and return how many there are. Raises CourseError without any, and where
    something else than an earlier file of the kind is."""
    store = store or own()
    name = _clean(name)
    if not name:
        raise CourseError("Under what name? A class ladder shows one: `course ladder export FILE --name Ada`.")
    climbs = [{field: getattr(climb, field) for field in _FIELDS} for climb in store.climbs() if climb.kind != COUNTED]
    if not climbs:
        raise CourseError("There is no rung of yours yet. A kernel's climb() makes one.")
    content = {"course": COURSE, "what": WHAT, "format": FORMAT, "name": name, "reader": _reader(store), "written": now(), "climbs": climbs}
    try:
        write_export(path, written(content), written({"course": COURSE, "what": WHAT}).rpartition(b"\n")[0])
    except OSError as error:
        raise CourseError(f"{path} cannot be written ({error.strerror or error}).") from None
    return len(climbs)


def _reader(store: Store) -> str:
    """What tells this reader from others, on every machine that the progress is taken to."""
    known = store.rows("SELECT answer FROM answers WHERE question = ? ORDER BY id LIMIT 1", (_READER,))
    return str(json.loads(known[0]["answer"])) if known else str(store.answer(_READER, secrets.token_hex(8)).answer)


@dataclass(frozen=True, repr=False)
class ClassLadder(Tabular):
    """The merged climbs, the fastest first within each product and GPU; and what was left out or odd, as sentences."""

    climbs: Sequence[ClassClimb]
    said: Sequence[str] = ()
    unread: Sequence[Path] = ()

    @property
    def product(self) -> Rung:
        """A rung of the product and GPU that most people have climbed; of several such, where the latest climb was."""
        if not self.climbs:
            raise CourseError("The class ladder is empty." + "".join(f"\n{sentence}" for sentence in self.said))
        return max((item.rung for item in self.climbs), key=self._rank)

    def _rank(self, rung: Rung) -> tuple[int, str]:
        """How many people have climbed at a rung's product, and when the last of them did."""
        alike = self._alike(rung)
        return len({item.person for item in alike}), max(item.latest for item in alike)

    def _alike(self, rung: Rung) -> list[ClassClimb]:
        return [item for item in self.climbs if _product(item.rung) == _product(rung)]

    def rungs(self) -> list[Rung]:
        """What the picture shows: the class's rungs at `product`, beside the course's own, cuBLAS and the limit."""
        one = self.product
        ours = ladder.rungs(one.m, one.n, one.k, one.dtype, one.out_dtype, device=one.device, kinds=(ladder.RECORDED, ladder.LIMIT))
        if not any(rung.kind == ladder.LIMIT for rung in ours):
            limit = ladder.limit(one.device, one.m, one.n, one.k, one.dtype, one.out_dtype)
            ours += [limit] if limit else []
        found: dict[str, Rung] = {}
        for item in self._alike(one):
            if item.person not in found:  # the fastest of each
                found[item.person] = replace(item.rung, name=_short(item.person, [rung.name for rung in found.values()]))
        return [*(rung for rung in ours if not rung.mine), *sorted(found.values(), key=lambda rung: rung.tflops or 0)]

    def table(self) -> Table:
        rows = [
            (
                item.person, item.rung.name, item.rung.device, named(item.rung.dtype, item.rung.out_dtype), _size(item.rung),
                digits(item.rung.tflops), f"{item.rung.cublas_ratio:.0%}" if item.rung.cublas_ratio else "", item.rung.kind, item.verified,
            )
            for item in self.climbs
        ]  # fmt: skip
        header = ("who", "kernel", "GPU", "types", "size", "TFLOPS", "of cuBLAS", "time", "verified")
        people = len({item.person for item in self.climbs})
        caption = f"Class ladder: {len(rows)} rung{'s' * (len(rows) != 1)} of {people} {'person' if people == 1 else 'people'}."
        return Table(header, rows, caption, left=(0, 1, 2, 3, 4, 7, 8), below=self.said)

    def draw(self):
        """The picture of `rungs()`, as Axes with their description in `.alt`."""
        from helpers.views.ladder import ladder as picture  # here: it imports matplotlib, which a terminal need not wait for

        return picture(self.rungs(), device=self.product.device)

    def _repr_html_(self) -> str:
        if not self.climbs:
            return self.table()._repr_html_()
        from helpers.views.canvas import to_html

        return f"{to_html(self.draw())}{self.table()._repr_html_()}"


@explained
def class_ladder(*paths: str | Path, again: bool = False, predict: Callable[[Mapping[str, Any]], tuple[float | None, str]] | None = None):
    """The ladder of a class from the files of `course ladder export`. A file that is no good is left out, with a sentence. Raises
    CourseError for what is no path at all, as a list of them.

    again: predict anew what is predicted, each in a process of its own with limits (a minute or so each). predict: by other means.
    """
    said, people, chosen = list[str](), dict[str, dict[str, Any]](), list[tuple[str, dict[str, Any]]]()
    contents, unread = [], list[Path]()
    for given in paths:
        if not isinstance(given, str | Path):
            kind = type(given).__name__
            raise CourseError(
                f'class_ladder() takes paths of files, each as an argument, and no {kind}: class_ladder("ada.json", "max.json").'
            )
    for path in dict.fromkeys(Path(path) for path in paths):
        try:
            contents.append((path, _content(path)))
        except CourseError as error:
            said.append(error.message)
            unread.append(path)
    for path, content in sorted(contents, key=lambda item: item[1]["written"]):
        held = people.setdefault(content["reader"], content)
        if held["name"] != content["name"]:
            said.append(f"{held['name']} and {content['name']} are files of one person, who stands here as {content['name']}.")
        people[content["reader"]] = content
        chosen += [(content["reader"], climb) for climb in content["climbs"]]
    files = {content["reader"]: path.name for path, content in contents}
    names = _told_apart({reader: content["name"] for reader, content in people.items()}, files, said)
    if again and predict is None:
        from .grading.apart import predicted as predict  # here: it starts processes
    best: dict[tuple, ClassClimb] = {}
    times: dict[tuple, set[str]] = {}  # of what is compared, the different climbs
    latest: dict[tuple, str] = {}  # and when the last of them was
    for reader, climb in chosen:
        doubt = _doubt(climb)
        rung = None if doubt else _rung(climb)
        key = None if rung is None else (reader, rung.name, rung.kind, _product(rung))
        if rung is None:
            sentence = f"{names[reader]}: {_label(climb)} is left out: {doubt}"
            said += [sentence] if sentence not in said else []
            continue
        times.setdefault(key, set()).add(json.dumps(climb, sort_keys=True))
        latest[key] = max(latest.get(key, ""), climb["created"])
        if key not in best or (rung.tflops or 0) > (best[key].rung.tflops or 0):
            best[key] = ClassClimb(names[reader], rung, climb["source"], "recorded by the course" if rung.kind == RECORDED else "")
    said += [
        f"{best[key].person}: of {len(climbs)} climbs of {best[key].rung.name} at {_size(best[key].rung)} on {best[key].rung.device}, "
        f"{best[key].rung.kind}, the fastest stands here."
        for key, climbs in times.items()
        if len(climbs) > 1
    ]
    dated = [replace(item, latest=latest[key]) for key, item in best.items()]
    found = [item if predict is None else _predicted_again(item, predict, said) for item in dated]
    kept = [item for item in found if item is not None]
    kept.sort(key=lambda item: (_product(item.rung), -(item.rung.tflops or 0), item.person))
    return ClassLadder(tuple(kept), tuple(said), tuple(unread))


def _predicted_again(item: ClassClimb, predict, said: list[str]) -> ClassClimb | None:
    """The climb as verified by its own source, or None with a sentence in `said`; one that is not predicted as it is."""
    if item.rung.kind != PREDICTED:
        return item
    wanted = {"source": item.source, "m": item.rung.m, "n": item.rung.n, "k": item.rung.k, "device": item.rung.device}
    try:
        milliseconds, why = predict(wanted)
    except CourseError as error:
        milliseconds, why = None, error.message
    if milliseconds is not None and abs(milliseconds - item.rung.milliseconds) <= _AGAIN * milliseconds:
        return replace(item, verified="predicted again")
    why = why or f"predicted anew it takes {milliseconds:.4g} ms, and the file says {item.rung.milliseconds:.4g} ms."
    said.append(f"{item.person}: {item.rung.name} is left out: {why}")
    return None


def _told_apart(names: Mapping[str, str], files: Mapping[str, str], said: list[str]) -> dict[str, str]:
    """A name for each reader: those who share one are numbered, past a number that is somebody's name. files: each reader's last one."""
    found, taken = {}, set(names.values())
    shared = sorted({name for name in taken if list(names.values()).count(name) > 1})
    for reader, name in names.items():
        numbered = (f"{name} ({number})" for number in itertools.count(1))
        found[reader] = next(other for other in numbered if other not in taken) if name in shared else name
        taken.add(found[reader])
    for name in shared:
        whose = ", ".join(f"{found[reader]} is {files[reader]}" for reader in names if names[reader] == name)
        said.append(f"Several people are called {name}; they are numbered: {whose}.")
    return found


def _content(path: Path) -> dict[str, Any]:
    """What a file of `export` holds. Raises CourseError."""
    try:
        data = read_whole(path)
        content = json.loads(data) if len(data) <= _LARGEST else None
    except OSError as error:
        raise CourseError(f"{path.name} cannot be read ({error.strerror or error}).") from None
    except (ValueError, RecursionError) as error:
        raise CourseError(f"{path.name} is damaged, or no file of `course ladder export` ({error}).") from None
    if not isinstance(content, dict) or content.get("course") != COURSE or content.get("what") != WHAT:
        kept = isinstance(content, dict) and content.get("course") == COURSE and "tables" in content
        more = (
            " It is one of `course progress --export`: its owner writes the other with `course ladder export FILE --name Ada`."
            if kept
            else ""
        )
        raise CourseError(f"{path.name} is no file of `course ladder export`.{more}")
    form = content.get("format")
    if isinstance(form, int) and form > FORMAT:
        raise CourseError(f"{path.name} was written by a newer version of the course. Update the course, and merge it again.")
    good = form == FORMAT and all(isinstance(content.get(name), str) for name in ("name", "reader", "written"))
    climbs = content.get("climbs")
    if not good or not isinstance(climbs, list) or len(climbs) > _MOST or not all(isinstance(climb, dict) for climb in climbs):
        raise CourseError(f"{path.name} is damaged: it is not as `course ladder export` writes it.")
    return content | {"name": _clean(content["name"]) or "without a name"}


def _clean(text: str) -> str:
    """A name in one line that can be shown."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())[:_LONGEST]


def _label(climb: Mapping[str, Any]) -> str:
    """What a climb is called, whatever its row is like."""
    label = climb.get("label")
    return (_clean(label) if isinstance(label, str) else "") or "kernel"


def _doubt(climb: Mapping[str, Any]) -> str:
    """'' or why a climb is not believed, as a sentence."""
    if not all(isinstance(climb.get(name), kinds) and not isinstance(climb.get(name), bool) for name, kinds in _FIELDS.items()):
        return "its row is not as `course ladder export` writes it."
    if any(isinstance(climb[name], int) and abs(climb[name]) >= _BEYOND for name in _FIELDS):
        return "a number in its row is larger than any that can be."
    if climb["kind"] not in CLIMBS or not {climb["dtype"], climb["out_dtype"]} <= ELEMENT_TYPES.keys():
        return "it is of no kind or type that the course knows."
    time, speed, extents = climb["milliseconds"], climb["tflops"], (climb["m"], climb["n"], climb["k"])
    if not time or not speed or not all(math.isfinite(value) and value > 0 for value in (time, speed, *extents)) or max(extents) >= 1 << 31:
        return "its time or its size is no positive number."
    if abs(2 * math.prod(extents) / time / 1e9 - speed) > _CLOSE * speed:
        return f"{speed:.4g} TFLOPS and {time:.4g} ms contradict each other at {_of(climb)}."
    if not climb["source"].strip() or hashlib.sha256(climb["source"].encode(errors="surrogatepass")).hexdigest() != climb["source_hash"]:
        return "its source is not the one that it was climbed with (the hash differs)."
    if climb["kind"] == RECORDED:
        known = ladder.recorded_time(climb["source"], _of(climb), climb["device"])
        if known is None or abs(known.milliseconds - time) > _CLOSE * time:
            return "the course has no such recorded run of this source."
    elif (limit := _limit(climb)) and speed > _ABOVE * limit.tflops:
        return f"{speed:.4g} TFLOPS are more than {climb['device']} can do ({limit.tflops:.4g})."
    ratio = climb["cublas_ratio"]
    return "" if ratio is None or (math.isfinite(ratio) and 0 < ratio < 100) else "its share of cuBLAS is no number that can be."


def _limit(climb: Mapping[str, Any]) -> Rung | None:
    """What the device could do at most with this climb's source. One that multiplies matrices of float32 by tensor cores, in pieces as
    step 18 does, is held to their limit and not to the lanes'."""
    product = climb["m"], climb["n"], climb["k"], climb["dtype"], climb["out_dtype"]
    unit = _PIECES if climb["dtype"] == "float32" and _MATRICES.search(without_comments(climb["source"])) else ""
    return ladder.limit(_clean(climb["device"]), *product, unit=unit)


def _of(climb: Mapping[str, Any]) -> Problem:
    return Problem(climb["m"], climb["n"], climb["k"], dtype=climb["dtype"], out_dtype=climb["out_dtype"])


def _rung(climb: Mapping[str, Any]) -> Rung:
    names = ("kind", "dtype", "out_dtype", "m", "n", "k", "milliseconds", "tflops", "cublas_ratio")
    return Rung(**{name: climb[name] for name in names}, name=_label(climb), device=_clean(climb["device"]), date=climb["created"][:10])


def _product(rung: Rung) -> tuple:
    """Which rungs can be compared."""
    return rung.device, rung.dtype, rung.out_dtype, rung.m, rung.n, rung.k


def _short(name: str, others: Sequence[str]) -> str:
    """A name as it stands beside a row, and unlike the others."""
    cut = name if len(name) <= _SHORT else f"{name[: _SHORT - 1]}…"
    return cut if cut not in others else _short(f"{len(others) + 1}. {name}", others)


def _size(rung: Rung) -> str:
    return f"{rung.m}³" if rung.m == rung.n == rung.k else f"{rung.m} × {rung.n} × {rung.k}"
