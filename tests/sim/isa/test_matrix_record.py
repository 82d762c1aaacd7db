"""Tensor cores give and count what an H200 gave and counted: helpers/data/matrix_h200.json, made by tests/gpu/test_tensor_cores.py.

`fingerprints`: of results with small whole numbers, which are the same bits on every machine that multiplies the right
elements. `bounds`: the largest difference between machine and GPU on other numbers, as a share of what isa/mma.py
allows. `counters`: of one launch each, in the order of `counted`.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.sim import Collect, simulate
from tests import DATA, ROOT
from tests.sim import matrix_cases as cases
from tests.sim import matrix_counts, matrix_products

RECORD = json.loads((DATA / "matrix_h200.json").read_text())
GROUPS = {arch: "\n".join(case.source for case in cases.MMAS if case.arch == arch) for arch in {case.arch for case in cases.MMAS}}
WGMMAS = "\n".join(case.source for case in cases.WGMMAS)


def run(source, case, symbol, blocks, threads, args, shared=0):
    made = cases.compiled(source, symbol, case.arch)
    simulate(made, (blocks, 1, 1), (threads, 1, 1), args, shared, collect=Collect(counters=False, findings=False), engine="numpy")
    return case.unpack(args[-1])


@pytest.mark.parametrize("case", cases.MMAS, ids=lambda case: case.name)
def test_mma_gives_the_bits_of_the_hardware(case):
    _, a, b, c, words = case.matrices(64, whole=True)
    packed = [
        case.pack("a", a),
        case.pack("b", b),
        case.pack("c", c),
        *([] if words is None else [words]),
        np.zeros_like(case.pack("c", c)),
    ]
    assert cases.fingerprint(run(GROUPS[case.arch], case, case.symbol, 64, 32, packed)) == RECORD["fingerprints"][case.name]


@pytest.mark.parametrize("case", cases.VOLTAS, ids=lambda case: case.name)
def test_voltas_mma_gives_the_bits_of_the_hardware(case):
    packed = [case.pack(operand, matrices) for operand, matrices in zip("abc", case.matrices(8), strict=True)]
    assert cases.fingerprint(run(case.source, case, "volta", 8, 32, packed)) == RECORD["fingerprints"][case.name]


@pytest.mark.parametrize("case", cases.WGMMAS, ids=lambda case: case.name)
def test_wgmma_gives_the_bits_of_the_hardware(case):
    _, a, b, c, words = case.matrices(whole=True)
    args = case.arguments(a, b, c, words, True, cases.TILES[0], cases.TILES[0])
    assert cases.fingerprint(run(WGMMAS, case, case.symbol, 1, 128, args, cases.IMAGE)) == RECORD["fingerprints"][case.name]


def _in_float32(cases_):
    return [(case, flavour) for case in cases_ for flavour in ("even", "wild") if f"{case.name} {flavour}" in RECORD["bits"]]


@pytest.mark.parametrize(("case", "flavour"), _in_float32(cases.MMAS), ids=lambda item: getattr(item, "name", item))
def test_sums_of_mma_are_cut_off_as_the_hardware_does_it(case, flavour):
    _, a, b, c, words = case.matrices(64, wild=flavour == "wild")
    packed = [case.pack("a", a), case.pack("b", b), case.pack("c", c), *([] if words is None else [words])]
    packed.append(np.zeros_like(packed[2]))
    found = run(GROUPS[case.arch], case, case.symbol, 64, 32, packed)
    assert cases.fingerprint(found) == RECORD["bits"][f"{case.name} {flavour}"]


@pytest.mark.parametrize(("case", "flavour"), _in_float32(cases.WGMMAS), ids=lambda item: getattr(item, "name", item))
def test_sums_of_wgmma_are_cut_off_as_the_hardware_does_it(case, flavour):
    tile = next(tile for tile in cases.TILES if cases.fits(case, tile))
    _, a, b, c, words = case.matrices(wild=flavour == "wild")
    found = run(WGMMAS, case, case.symbol, 1, 128, case.arguments(a, b, c, words, True, tile, tile), cases.IMAGE)
    assert cases.fingerprint(found) == RECORD["bits"][f"{case.name} {flavour}"]


def test_of_sums_in_float32_only_those_of_float8_in_mma_have_other_bits():
    every = {f"{case.name} {flavour}": case for case in (*cases.MMAS, *cases.WGMMAS) if case.d == "f32" for flavour in ("even", "wild")}
    others = set(every) - set(RECORD["bits"])
    assert set(RECORD["bits"]) <= set(every)
    assert {every[name].a for name in others} <= {"e4m3", "e5m2"}
    assert not {every[name] for name in others} & set(cases.WGMMAS)


def test_every_form_ran_and_stayed_within_its_bound():
    ran = {case.name for case in (*cases.MMAS, *cases.WGMMAS, *matrix_products.GEMMS, *matrix_products.WGMMA_GEMMS)} | {
        case.symbol for case in cases.WMMAS
    }
    assert set(RECORD["bounds"]) == ran | {f"tma-wgmma-{lag}-in-flight" for lag in (0, 1)}
    assert max(RECORD["bounds"].values()) <= 1
    exact = [case.name for case in (*cases.MMAS, *cases.WGMMAS) if case.d == "s32"]
    assert all(RECORD["bounds"][name] == 0 for name in exact)


def test_the_readme_says_what_was_measured():
    every = {case.name: case for case in (*cases.MMAS, *cases.WGMMAS)}
    narrow = [name for name, case in every.items() if case.a in ("e4m3", "e5m2")]
    wide = [name for name, case in every.items() if case.a == "f64"]
    most = {"f32": max(share for name, share in RECORD["bounds"].items() if name not in (*narrow, *wide) and "f64" not in name),
            "8-bit": max(RECORD["bounds"][name] for name in narrow), "f64": max(RECORD["bounds"][name] for name in wide)}  # fmt: skip
    text = " ".join((ROOT / "helpers" / "sim" / "README.md").read_text().split())
    share = {name: f"{np.ceil(100 * value):.0f} %" for name, value in most.items()}
    assert (
        f"at most {share['f32']} with f32 accumulators (8-bit floats: {share['8-bit']}, of a wider bound) and {share['f64']} with f64."
        in text
    )


@pytest.mark.slow
def test_counters_equal_nsight_computes():
    """Tensor pipes, shared memory that wgmma reads (K-major and MN-major, swizzled or not, sparse), stores of wmma tiles."""
    assert RECORD["counted"] == list(matrix_counts.COUNTERS) and set(RECORD["counters"]) == {case.name for case in matrix_counts.counted()}
    ours = {case.name: matrix_counts.counters_of_the_machine(case) for case in matrix_counts.counted()}
    assert ours == RECORD["counters"]
