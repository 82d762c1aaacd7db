"""What the machine says about every kernel of the course and of the tests, as a file, and how two such files differ.

    python -m tests.corpus dump FILE.json [--only GLOB] [--engine native|numpy|both]
    python -m tests.corpus compare OLD NEW            exit status 1 if anything differs, and the first differences

For changes that must change nothing: dump before, dump after, compare. A record is one launch in one engine: results (a hash
of the bytes of every array), counters, counters per line, findings, what the compiler said of the kernel; for the kernels of
the course also checks, traces and predicted times. What goes wrong is a record, too: its type, its message, its findings.

Only public calls of `helpers` are used, and the cases of other tests; what needs more stands under "Inside the machine".
Engines are forced, because left to itself a launch takes the engine that is ready first. Every dump compiles everything anew;
only what nvdisasm said of the same machine code is kept, in the system's folder for temporary files.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import hashlib
import importlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

import helpers
from tests import ROOT

HERE = ROOT / "tests"

ENGINES = ("numpy", "native")
GPUS = ("H200 SXM", "A100 SXM4 80GB", "RTX 3090")  # the first for every run of the course's kernels, all for the large ones
COUNTED = (300, 4096)  # M = N = K of launches that are counted from one block of each class
SHOWN = 40  # differences that `compare` prints
PATIENCE = 120.0  # seconds of this process (not of the clock, which others can slow down) that one record may take
SLOW = 3.0  # seconds of this process from which on `dump` names a case
# Of the planted bugs. Elsewhere a loop that waits for an mbarrier may keep the counting of machine code busy for minutes.
COUNTED_FILES = ("bounds.cu", "copies.cu", "races.cu", "warps.cu", "blocks.cu", "tiles.cu")

# --- Inside the machine: all that is not a public call ---------------------------------------------------------------


@contextlib.contextmanager
def forced(engine: str) -> Iterator[None]:
    """Every launch on the CPU in this engine; "native" refuses what it cannot do (RunError)."""
    module = sys.modules[helpers.Kernel.__module__]  # whose `simulate` a launch calls
    usual = module.simulate
    module.simulate = functools.partial(usual, engine=engine)
    try:
        yield
    finally:
        module.simulate = usual


@contextlib.contextmanager
def watched(**forced_options) -> Iterator[list]:
    """The Runs of all launches in here, which get these options: for tests' functions that give only a part of a Run."""
    runs, usual = [], helpers.Kernel.launch

    def launch(self, *args, **options):
        runs.append(usual(self, *args, **{**options, **forced_options}))
        return runs[-1]

    helpers.Kernel.launch = launch
    try:
        yield runs
    finally:
        helpers.Kernel.launch = usual


@contextlib.contextmanager
def disassembled_once(folder: Path) -> Iterator[None]:
    """nvdisasm, half of all the time, answers from this folder what it was asked before: told apart by the machine code."""
    usual = subprocess.run
    folder.mkdir(parents=True, exist_ok=True)

    def run(command, *args, **options):
        if "nvdisasm" not in str(command[0]) or not Path(command[-1]).is_file():
            return usual(command, *args, **options)
        kept = folder / digest(repr(command[:-1]).encode() + Path(command[-1]).read_bytes())
        if kept.exists():
            return subprocess.CompletedProcess(command, 0, kept.read_text(encoding="utf-8"), "")
        result = usual(command, *args, **options)
        if not result.returncode:
            made = kept.with_suffix(f".{os.getpid()}")
            made.write_text(result.stdout, encoding="utf-8")
            made.replace(kept)
        return result

    subprocess.run = run
    try:
        yield
    finally:
        subprocess.run = usual


def remarks(run) -> dict:
    """Which engine ran, and what the machine adds to its counters."""
    said = run.outcome
    return {"engine": said.engine, "estimate": said.estimate, "printed": said.printed, "sampled": said.sampled, "uncounted": said.uncounted}


def constant(kernel, name: str, default=None):
    """The numbers that the source declares under this name (block_shape, …)."""
    return kernel.compiled.constants.get(name, default)


def memory_of(value) -> np.ndarray | None:
    """The array that an argument is, or that a tensor map is of."""
    value = getattr(value, "memory", value)
    return value if isinstance(value, np.ndarray) and value.ndim else None


def of_tests(name: str):
    """A module of the tests, wherever it is kept."""
    (path,) = HERE.rglob(f"{name}.py")
    return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


# --- records ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One launch. go() makes its arguments and launches; it returns the Run, or (the Run, what else to record).

    What else is a dict, or a function that makes one and is called for the NumPy machine only, since it may launch again.
    engines: in which it is tried. key: names it in the file.
    """

    key: str
    go: Callable[[], Any]
    engines: tuple[str, ...] = ENGINES


def plain(value: Any) -> Any:
    """`value` as JSON has it; floats that it lacks as text, everything else as str()."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    return str(value)


def digest(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]


def hashed(array: np.ndarray) -> str:
    """Of the shape and the bits, field by field: between fields there may be bytes that nobody set."""
    if array.dtype.names:
        return digest(" ".join(hashed(array[name]) for name in array.dtype.names))
    return digest(str((array.shape, array.dtype.str)).encode() + np.ascontiguousarray(array).tobytes())


def finding(found) -> dict:
    return {name: plain(getattr(found, name)) for name in ("kind", "line", "other_line", "message", "advice", "block", "thread", "count")}


@functools.cache
def of_kernel(kernel) -> dict:
    """What the compiler made of it."""
    return {
        "name": kernel.name, "registers": kernel.registers, "shared_bytes": kernel.shared_bytes, "source": digest(kernel.source),
        "ptx": digest(kernel.ptx), "sass": digest(kernel.sass),
    }  # fmt: skip


def of_run(run) -> dict:
    """Everything that a Run says of its launch, but for its trace."""
    arrays = [memory_of(value) for value in run.arguments]
    return {
        **remarks(run), "kernel": of_kernel(run.kernel), "grid": plain(run.grid), "block": plain(run.block),
        "results": [None if array is None else hashed(array) for array in arrays],
        "counters": plain(run.counters), "by_line": plain(run.by_line), "findings": [finding(item) for item in run.findings],
    }  # fmt: skip


SITE = ("line", "space", "op", "width", "opcode")
ALLOCATION = ("name", "space", "nbytes", "shape", "itemsize", "dtype")


def of_trace(trace) -> dict:
    """The recorded events, as hashes and how many there are; the instructions they come from, and the memory they go to.

    Arrays lie in the machine in the order in which the host happened to place them, so an address in one is told from its start.
    """
    allocations = sorted(trace.allocations, key=lambda item: (item.space, item.name))
    addresses = trace.addresses.copy()
    for number, item in enumerate(allocations):
        if item.space != "shared":
            inside = (trace.addresses >= item.base) & (trace.addresses < item.base + item.nbytes)
            addresses[inside] += ((number + 1) << 48) - item.base
    events = {"accesses": trace.accesses, "addresses": addresses, "barriers": trace.barriers, "math": trace.math}
    return {
        **{name: [len(rows), hashed(rows)] for name, rows in events.items()},
        "sites": [[plain(getattr(site, name)) for name in SITE] for site in trace.sites],
        "allocations": [[plain(getattr(item, name)) for name in ALLOCATION] for item in allocations],
        "truncated": trace.truncated,
    }


def predicted(run, gpu: str = GPUS[0]) -> dict:
    found = run.predict(gpu)
    return {name: plain(getattr(found, name)) for name in ("milliseconds", "limiter", "terms", "error", "waves", "occupancy")}


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in here after so many seconds of the processor."""

    def stop(*_):
        raise TimeoutError(f"more than {seconds:g} seconds of this process")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def record(case: Case, engine: str) -> dict:
    """What this engine makes of a case. A crash is recorded, whatever it is."""
    try:
        with forced(engine), limited(PATIENCE):
            made = case.go()
        run, more = made if isinstance(made, tuple) else (made, {})
        if callable(more):
            more = more() if engine == "numpy" else {}
        return {**({} if run is None else of_run(run)), **plain(more)}
    except Exception as error:  # recorded, whatever it is: this is a list of what happens, not a judgement
        return {
            "error": type(error).__name__, "message": getattr(error, "message", str(error)), "line": plain(getattr(error, "line", None)),
            "findings": [finding(item) for item in getattr(error, "findings", [])],
        }  # fmt: skip


# --- the kernels of the course ---------------------------------------------------------------------------------------


@functools.cache
def compiled(source: str, entry: str | None = None, arch: str = "sm_90", *options: str):
    return helpers.compile(source, entry, arch, options)


def product(kernel, *extents: int, **options):
    """The Run of a kernel with the course's signature on a `helpers.Problem`, with its own geometry."""
    block, (rows, columns) = constant(kernel, "block_shape"), constant(kernel, "tile_shape")
    problem = helpers.Problem(*extents, **options)
    if "CUtensorMap" in kernel.source:  # which only the course makes
        return helpers.gemm.run(kernel, problem, on="cpu")
    a, b, c = problem.arrays()
    args = [problem.m, problem.n, problem.k, problem.alpha, a, problem.lda, b, problem.ldb, problem.beta, c, problem.ldc]
    if len(re.search(rf"\b{kernel.name}\(([^)]*)\)", kernel.source)[1].split(",")) > len(args):
        args.append(problem.bias())
    grid = -(-problem.n // columns), -(-problem.m // rows), constant(kernel, "grid_depth", (1,))[0] * problem.batch
    return kernel.launch(grid, block, args, constant(kernel, "dynamic_shared", (0,))[0], on="cpu")


SHAPES = ("counted", "tiles", "padded", "over", "under", "thin", "empty", "aligned")
NATIVE_SHAPES = ("counted", "padded")


def shapes(kernel) -> dict[str, tuple[tuple, dict]]:
    """name -> (m, n, k and what else a Problem takes): whole tiles, edges, thin and empty matrices, padding, alpha, beta."""
    rows, columns = constant(kernel, "tile_shape")
    most = max(64, rows, columns)
    made = {
        "counted": ((most, most, most), {}),
        "tiles": ((2 * rows, 2 * columns, 40), {}),
        "padded": ((17, 23, 19), {"alpha": 0.5, "beta": -2.0, "pad_a": 3, "pad_b": 5, "pad_c": 7, "seed": 1}),
        "over": ((rows + 1, max(1, columns - 1), 33), {"alpha": 2.5, "seed": 2}),
        "under": ((max(1, rows - 1), columns + 1, 31), {"alpha": -1.5, "beta": 1.0, "pad_c": 1, "seed": 3}),
        "thin": ((1, 2 * columns + 3, 5), {"seed": 4}),
        "empty": ((5, 7, 0), {"beta": 3.0, "seed": 7}),
        "aligned": ((18, 22, 21), {"beta": 1.0, "pad_a": 3, "pad_b": 2, "pad_c": 2, "seed": 8}),
    }
    assert tuple(made) == SHAPES
    return made


def course() -> Iterator[Case]:
    """kernels/*.cu: every shape, a trace, the check, the profile of large products."""
    for path in sorted((ROOT / "kernels").glob("*.cu")):
        slug, key = path.stem[3:], f"kernels/{path.stem}"
        get = functools.cache(functools.partial(helpers.reference, slug))

        def shape(name, get=get):
            extents, options = shapes(get())[name]
            run = get().gemm(*extents, on="cpu", **options)
            return run, lambda: {"predicted": predicted(run)}

        def traced(get=get):
            run = get().gemm(*shapes(get())["counted"][0], on="cpu", trace=helpers.TraceFilter(math=True))
            return run, {"trace": of_trace(run.trace)}

        def checked(get=get):
            return None, {"check": str(get().check(on="cpu")).split("\n")}

        def counted(size, get=get):
            profile = get().profile(size, gpu_name=GPUS[0])
            return profile.run, {
                "profile": str(profile).split("\n"),
                "predicted": {gpu: predicted(profile.run, gpu) for gpu in GPUS[: 1 if size < 4096 else None]},
            }

        for name in SHAPES:
            yield Case(f"{key}/{name}", functools.partial(shape, name), ENGINES if name in NATIVE_SHAPES else ("numpy",))
        yield Case(f"{key}/trace", traced, ("numpy",))
        yield Case(f"{key}/check", checked, ("numpy",))
        for size in COUNTED:
            yield Case(f"{key}/{size}", functools.partial(counted, size), ("numpy",))


def course_variants() -> Iterator[Case]:
    """Of the kernels that use the grid's z: blocks that share a tile, and batches."""
    for path in sorted((ROOT / "kernels").glob("*.cu")):
        source = path.read_text(encoding="utf-8")
        if "grid_depth" not in source:
            continue
        for slices, batch in ((1, 2), (3, 1)):
            text, count = re.subn(r"\bSLICES = \d+;", f"SLICES = {slices};", source)
            assert count == 1, path

            def go(text=text, batch=batch):
                return product(compiled(text), 40, 70, 100, batch=batch, beta=1.0, alpha=0.5)

            yield Case(f"kernels/{path.stem}/slices {slices}, batch {batch}", go, ("numpy",))


def exercises() -> Iterator[Case]:
    """Solution and starter of every exercise: a launch, and its check."""
    for path in sorted(filter(Path.is_file, next((ROOT / "helpers").rglob("exercise_sources")).iterdir())):
        item = helpers.exercise(path.stem[3:])
        for what in ("solution", "starter"):
            text, key = getattr(item, what), f"exercises/{path.stem}/{what}"
            if path.suffix == ".cu":

                def launch(text=text):
                    kernel = compiled(text)
                    return product(kernel, *shapes(kernel)["counted"][0])

                yield Case(key, launch, ENGINES if what == "solution" and item.lesson < 5 else ("numpy",))  # later ones compile long

            def check(item=item, text=text):
                if item.language == "cu":
                    answer = compiled(text)
                else:
                    names: dict[str, Any] = {}
                    exec(text, names)
                    answer = names[item.slug]
                return None, {"check": str(item.check(answer)).split("\n")}

            yield Case(f"{key}/check", check, ("numpy",))


# --- the kernels of the tests ----------------------------------------------------------------------------------------


def planted() -> Iterator[Case]:
    """tests/sim/bugs and their corrected twins, tests/sim/correct: findings, and counters of some that are correct."""
    bug_corpus = of_tests("bug_corpus")

    for folder in ("bugs", "correct"):
        for bug in bug_corpus.corpus(HERE / "sim" / folder):
            for fixed in (False, True) if folder == "bugs" else (False,):

                def go(bug=bug, fixed=fixed, folder=folder):
                    launch = bug.twin_launch if fixed else bug.launch
                    seconds = bug_corpus.ENDLESS_SECONDS if bug.kinds == ("endless",) and not fixed else 60.0
                    arch, options = "sm_90a" if "wgmma" in bug.source else "sm_90", ("-DFIXED",) if fixed else ()
                    kernel = compiled(bug.source, None, arch, *options)
                    return kernel.launch(
                        launch.grid, launch.block, launch.arguments(), launch.shared, on="cpu", seconds=seconds,
                        counters=bug.file in COUNTED_FILES and (fixed or folder == "correct"), uninitialized=launch.never_written(kernel),
                    )  # fmt: skip

                yield Case(f"{folder}/{bug.file[:-3]}/{bug.name}{'/fixed' * fixed}", go)


def calibrated() -> Iterator[Case]:
    """The whole kernels whose counters were measured, as tests/sim/counting.py launches them."""
    counting = of_tests("probes")

    for number, case in enumerate(dict.fromkeys(counting.CASES)):

        def go(case=case):
            kernel = compiled(next(HERE.rglob(case.file)).read_text(encoding="utf-8"), case.kernel)
            blocks = None if math.prod(case.grid) * math.prod(case.block) <= 1 << 16 else range(4)  # some are slow in the NumPy machine
            return kernel.launch(case.grid, case.block, case.arrays(), on="cpu", blocks=blocks)

        yield Case(f"calibration/{number:02} {case.kernel}", go)


def probes() -> Iterator[Case]:
    """A third of the access patterns that were measured (tests/gpu/calibration.py), their table being an argument here."""
    calibration = of_tests("calibration")

    source, changed = re.subn(r"__constant__ unsigned table\[65\];", "struct Table { unsigned at[65]; };", calibration.source())
    assert changed == 1
    source = source.replace("(unsigned char* buffer)", "(unsigned char* buffer, const __grid_constant__ Table given)")
    head, *parts = re.sub(r"\btable\[", "given.at[", source).split('extern "C" ')
    sources = {re.search(r"void (\w+)", part)[1]: f'{head}extern "C" {part}' for part in parts}
    for row in calibration.launches()[::3]:

        def go(row=row):
            table = np.array([*row["shared"], *row["global"], row["mask"]], np.uint32).tobytes()
            room = calibration.STEP * (calibration.REPEAT + 1)
            return compiled(sources[row["probe"]]).launch(1, 32, [np.zeros(room, np.uint8), table], room, on="cpu", findings=False)

        yield Case(f"probes/{row['probe'][6:]}/{row['pattern']}", go, ("numpy",))


def clusters() -> Iterator[Case]:
    """Clusters, cooperative groups, libcu++: tests/sim/cluster_cases.py and cluster_products.py."""
    cluster_cases, cluster_products = of_tests("cluster_cases"), of_tests("cluster_products")

    for case in cluster_cases.CASES:

        def go(case=case):
            return compiled(case.source).launch(case.grid, case.block, case.arguments(), case.shared, on="cpu", cluster=case.cluster)

        yield Case(f"clusters/{case.name}", go)

    def specialized():
        args, _ = cluster_products.warp_specialized_arguments(128, 256, 256)
        return compiled(cluster_products.warp_specialized(), None, "sm_90a").launch((2, 1), 384, args, 3 * 32768, on="cpu")

    yield Case("clusters/warp_specialized", specialized, ("numpy",))


def bulk() -> Iterator[Case]:
    """Bulk copies and tensor maps: half of tests/sim/tensor_cases.py, bulk_probes.py, tma_gemm.py."""
    bulk_probes = of_tests("bulk_probes")
    tensor_cases = of_tests("tensor_cases")
    tma_gemm = of_tests("tma_gemm")

    for case in tensor_cases.CASES[::2]:

        def copy(case=case):
            with watched(counters=True) as runs:
                result = tensor_cases.run(case, "cpu")
            return runs[-1], {"result": hashed(result)}

        yield Case(f"bulk/{case.name}", copy, ("numpy",))
    for row in bulk_probes.ROWS:
        yield Case(f"bulk/probes/{row.name}", functools.partial(bulk_probes.launch, row, "cpu"), ("numpy",))
    for kind in tma_gemm.TYPES:
        for extents in ((64, 64, 64), (100, 72, 200)):

            def multiply(kind=kind, extents=extents):
                run, c, _ = tma_gemm.launch(kind, *extents, "cpu")
                return run, {"result": hashed(c)}

            yield Case(f"bulk/tma {kind} {extents}", multiply)

    def warpgroups():
        run, c, _ = tma_gemm.launch_warpgroups(200, 100, 72, "cpu")
        return run, {"result": hashed(c)}

    yield Case("bulk/tma and wgmma", warpgroups, ("numpy",))


def matrices() -> Iterator[Case]:
    """Tensor cores: every mma, wgmma and wmma of tests/sim/matrix_cases.py, in two flavours of numbers, and whole products."""
    cases, products = of_tests("matrix_cases"), of_tests("matrix_products")

    def bytes_where_asked(case, args):
        """Kernels that take elements of any type take bytes."""
        return [v.view(np.uint8) if isinstance(v, np.ndarray) and i < 5 and "char* A" in case.source else v for i, v in enumerate(args)]

    for case in cases.MMAS:
        for flavour in ("even", "wild"):

            def mma(case=case, flavour=flavour):
                _, a, b, c, words = case.matrices(4, wild=flavour == "wild")
                more = [] if words is None else [words]
                args = [case.pack("a", a), case.pack("b", b), case.pack("c", c), *more, np.zeros_like(case.pack("c", c))]
                arch = "sm_90" if case.arch < "sm_90" else case.arch
                return compiled(case.source, case.symbol, arch).launch(4, 32, args, on="cpu")

            yield Case(f"matrices/mma {case.name}/{flavour}", mma)
    for case in cases.VOLTAS:

        def volta(case=case):
            args = [case.pack(operand, values) for operand, values in zip("abc", case.matrices(3), strict=True)]
            return compiled(case.source, None, case.arch).launch(3, 32, args, on="cpu")

        yield Case(f"matrices/{case.name}", volta, ("numpy",))
    for i, case in enumerate(cases.WGMMAS):
        for tile in {cases.TILES[0], cases.TILES[1 + i % 4]}:
            if not cases.fits(case, tile):
                continue

            def wgmma(case=case, tile=tile):
                _, a, b, c, words = case.matrices()
                args = case.arguments(a, b, c, words, True, tile, tile)
                return compiled(case.source, case.symbol, case.arch).launch(1, 128, args, cases.IMAGE, on="cpu")

            yield Case(f"matrices/wgmma {case.name}/{tile}", wgmma, ("numpy",))
    for case in cases.WMMAS:

        def wmma(case=case):
            args = case.arguments(5, False)
            source = cases.WMMA_HEADER + case.source
            return compiled(source, case.symbol, case.arch).launch(1, 32, args, sum(arg.nbytes for arg in args[:3]), on="cpu")

        yield Case(f"matrices/{case.symbol}", wmma)
    for case in (*products.GEMMS, *products.WGMMA_GEMMS):

        def gemm(case=case):
            m, n = case.tile
            args = bytes_where_asked(case, case.arguments(m, 2 * n, 128))
            return compiled(case.source, case.symbol, case.arch).launch(case.grid(m, 2 * n), case.threads, args, case.shared, on="cpu")

        yield Case(f"matrices/{case.name}-{case.d}", gemm, ENGINES if case in products.GEMMS else ("numpy",))
    for lag in (0, 1):

        def fed(lag=lag):
            args, _, _ = products.tma_arguments(128, 128, 256)
            return compiled(products.tma_gemm(lag), None, "sm_90a").launch((1, 1), 384, args, 3 * 32768, on="cpu")

        yield Case(f"matrices/tma-wgmma-{lag}-in-flight", fed, ("numpy",))


GROUPS = (course, course_variants, exercises, planted, calibrated, probes, clusters, bulk, matrices)


def all_cases() -> Iterator[Case]:
    """Every case. A group whose cases cannot even be listed is one case that fails."""
    for group in GROUPS:
        try:
            yield from group()
        except Exception as error:  # recorded like any other crash

            def go(error=error):
                raise error

            yield Case(f"cannot list/{group.__name__}", go, ("numpy",))


# --- dump ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def fresh_home() -> Iterator[None]:
    """Nothing comes from a cache, and nothing is added to the reader's progress."""
    before = os.environ.get("GEMM_LADDER_HOME")
    with tempfile.TemporaryDirectory() as home:
        os.environ["GEMM_LADDER_HOME"] = home
        try:
            yield
        finally:
            os.environ.pop("GEMM_LADDER_HOME")
            if before is not None:
                os.environ["GEMM_LADDER_HOME"] = before


def dump(only: str = "*", engines: tuple[str, ...] = ENGINES, say: Callable[[str], None] = lambda text: None) -> dict[str, dict]:
    """{key: {engine: record}} of the cases whose key matches the pattern."""
    records: dict[str, dict] = {}
    start = last = time.monotonic()
    group = ""
    with fresh_home(), disassembled_once(Path(tempfile.gettempdir()) / f"gemm-ladder-sass-{os.getuid()}"):
        for case in all_cases():
            if not fnmatch.fnmatchcase(case.key, only):
                continue
            if case.key in records:
                raise ValueError(f"two cases are called {case.key!r}")
            this = case.key.split("/")[0]
            if this != group or time.monotonic() - last > 15:
                last, group = time.monotonic(), this
                say(f"{last - start:6.1f} s ({time.process_time():.0f} s of this process)  {len(records):5} cases done, next: {case.key}")
            began = time.process_time()
            records[case.key] = {engine: record(case, engine) for engine in case.engines if engine in engines}
            if (took := time.process_time() - began) > SLOW:
                say(f"          {case.key} took {took:.1f} s")
    say(f"{time.monotonic() - start:6.1f} s  {len(records):5} cases done")
    return records


def summary(records: dict[str, dict]) -> list[str]:
    """How many launches there are, per group, engine and what became of them."""
    counts = Counter(
        (key.split("/")[0], engine, item.get("error", "ran")) for key, engines in records.items() for engine, item in engines.items()
    )
    return [f"{group:12} {engine:7} {what:14} {count:5}" for (group, engine, what), count in sorted(counts.items())]


def write(records: dict[str, dict], path: Path) -> None:
    """One line per case, sorted: git and diff can read it, too."""
    lines = [f"{json.dumps(key)}: {json.dumps(records[key], sort_keys=True, allow_nan=False)}" for key in sorted(records)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


# --- compare ---------------------------------------------------------------------------------------------------------

MISSING = "(nothing)"


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(keys on the way, value) of everything that is not a container; an empty container counts as a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items:
        yield path, value
    for key, item in items:
        yield from leaves(item, (*path, str(key)))


def differences(old: dict[str, dict], new: dict[str, dict]) -> list[dict]:
    """One row for each number that differs: kernel, engine, counter, line, old, new. A case or engine that one lacks is one row."""
    found = []

    def add(kernel, engine, counter, line, before, after):
        found.append({"kernel": kernel, "engine": engine, "counter": counter, "line": line, "old": before, "new": after})

    for kernel in sorted(old.keys() | new.keys()):
        if kernel not in old or kernel not in new:
            add(kernel, "", "whole case", "", *("there" if kernel in side else MISSING for side in (old, new)))
            continue
        for engine in sorted(old[kernel].keys() | new[kernel].keys()):
            if engine not in old[kernel] or engine not in new[kernel]:
                add(kernel, engine, "whole record", "", *("there" if engine in side[kernel] else MISSING for side in (old, new)))
                continue
            before, after = (dict(leaves(side[kernel][engine])) for side in (old, new))
            for path in sorted(before.keys() | after.keys()):
                one, other = before.get(path, MISSING), after.get(path, MISSING)
                if type(one) is not type(other) or one != other:
                    line = path[1] if path[0] == "by_line" and len(path) > 1 else ""
                    name = path[2:] if line else path[1:] if path[0] == "counters" and len(path) > 1 else path
                    add(kernel, engine, ".".join(name) or path[0], line, one, other)
    return found


def report(found: list[dict], shown: int = SHOWN) -> str:
    """The first differences, one a line, and how many there are for which kernels."""
    if not found:
        return "The two are identical."
    rows = [
        f"{row['kernel']}  [{row['engine']}]  {row['counter']}" + (f"  line {row['line']}" if row["line"] else "")
        + f"\n    old: {row['old']}\n    new: {row['new']}"
        for row in found[:shown]
    ]  # fmt: skip
    kernels = Counter(row["kernel"].split("/")[0] for row in found)
    many = len({row["kernel"] for row in found})
    where = ", ".join(f"{name} {count}" for name, count in sorted(kernels.items()))
    more = f"… and {len(found) - shown} more\n" if len(found) > shown else ""
    return "\n".join(rows) + f"\n{more}{len(found)} differences in {many} cases: {where}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.corpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("dump", help="run everything and write what the machine says")
    command.add_argument("file", type=Path)
    command.add_argument("--only", default="*", metavar="GLOB", help="only cases whose name matches, such as 'bugs/races/*'")
    command.add_argument("--engine", default="both", choices=(*ENGINES, "both"))
    command = commands.add_parser("compare", help="print the first differences; exit status 1 if there are any")
    command.add_argument("old", type=Path)
    command.add_argument("new", type=Path)
    command.add_argument("--only", default="*", metavar="GLOB", help="compare only these cases")
    given = parser.parse_args(arguments)
    if given.command == "dump":
        engines = ENGINES if given.engine == "both" else (given.engine,)
        records = dump(given.only, engines, lambda text: print(text, flush=True))
        write(records, given.file)
        print("\n".join(summary(records)))
        return 0
    old, new = (
        {key: item for key, item in json.loads(path.read_text(encoding="utf-8")).items() if fnmatch.fnmatchcase(key, given.only)}
        for path in (given.old, given.new)
    )
    found = differences(old, new)
    print(f"{len(old)} cases before, {len(new)} after.\n{report(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
