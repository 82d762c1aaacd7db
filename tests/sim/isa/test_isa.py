"""Every example beside an instruction handler, run on edge-case values and compared with exact Python arithmetic.

Tests of: helpers.sim.isa.bits, helpers.sim.isa.exact, helpers.sim.isa.floating, helpers.sim.isa.integer,
helpers.sim.isa.move, helpers.sim.isa.numerics, helpers.sim.isa.video
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from fractions import Fraction

import numpy as np
import pytest

from helpers.sim import Collect, simulate
from helpers.sim.isa import EXAMPLES, REGISTRY, Example, base
from helpers.sim.isa.exact import FORMATS, round_float, round_fraction
from tests.sim.ptx_text import kernel, without_handler

SIZE = {"pred": 4, "b8": 1, "u8": 1, "s8": 1}
FLOATS = tuple(FORMATS)


def size_of(kind: str) -> int:
    """Bytes an operand takes in the test's arrays (predicates travel as 32-bit words)."""
    if kind in SIZE:
        return SIZE[kind]
    if kind == "tf32" or kind.endswith("x2"):
        return 4
    return int("".join(c for c in kind if c.isdigit())) // 8


def bits_of_float(value: float, kind: str) -> int:
    """The bit pattern of a float that `kind` can represent."""
    if kind == "f64":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if kind == "f16":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    pattern = struct.unpack("<I", struct.pack("<f", value))[0]
    return pattern >> 16 if kind == "bf16" else pattern


def float_of_bits(bits: int, kind: str) -> float:
    if kind == "f64":
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    if kind == "f16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits << 16 if kind == "bf16" else bits))[0]


def edge_values(kind: str, count: int) -> list:
    """Values that break wrong implementations, and a few random ones."""
    rng = random.Random(kind)
    if kind == "pred":
        return [0, 1]
    if kind in FLOATS:
        precision, low, high = FORMATS[kind]
        step = 2.0 ** (1 - precision)
        largest = (2 - step) * 2.0**high
        values = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            1 + step,
            2.0**low,
            2.0 ** (low - precision + 1),
            largest,
            math.inf,
            -math.inf,
            math.nan,
            3.0,
            -0.1,
        ]
        values += [rng.uniform(-1, 1) * 2.0 ** rng.randint(low, high) for _ in range(8)]
        values += [rng.uniform(-4, 4) for _ in range(6)]
        return [round_float(v, kind) for v in values[:count]]
    bits = size_of(kind) * 8
    signed = kind[0] == "s"
    values = [0, 1, 2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1, 5, 2**bits - 7, 31, 33, 0x0F1E2D3C4B5A6978]
    values += [rng.getrandbits(bits) for _ in range(12)]
    values = [v % 2**bits for v in values][:count]
    return [v - 2**bits if signed and v >= 2 ** (bits - 1) else v for v in values]


def program(example: Example):
    """A kernel that applies the example's instruction to one value of each source per thread."""
    names = "abcefghi"  # d is the result
    body, registers, parameters = [], [], [".param .u64 out"]
    for kind, name in [(example.result, "d"), *zip(example.sources, ["s" + n for n in names], strict=False)]:
        registers.append(f".reg .{'pred' if kind == 'pred' else f'b{size_of(kind) * 8}'} %{name};")
    for i, kind in enumerate(example.sources):
        parameters.append(f".param .u64 in{i}")
        size = size_of(kind)
        body += [f"ld.param.u64 %p, [in{i}];", f"mad.wide.u32 %p, %i, {size}, %p;"]
        if kind == "pred":
            body += ["ld.global.u32 %t, [%p];", f"setp.ne.u32 %s{names[i]}, %t, 0;"]
        else:
            body.append(f"ld.global.b{size * 8} %s{names[i]}, [%p];")
    operands = {"d": "%d", **{n: f"%s{n}" for n in names[: len(example.sources)]}}
    template = example.template or f"{example.opcode} {{d}}, " + ", ".join(f"{{{n}}}" for n in names[: len(example.sources)]) + ";"
    body.append(template.format(**operands))
    size = size_of(example.result)
    body += ["ld.param.u64 %p, [out];", f"mad.wide.u32 %p, %i, {size}, %p;"]
    body += ["selp.u32 %t, 1, 0, %d;", "st.global.u32 [%p], %t;"] if example.result == "pred" else [f"st.global.b{size * 8} [%p], %d;"]
    start = [".reg .b32 %i, %t, %n;", ".reg .b64 %p;", *registers,
             "mov.u32 %i, %ctaid.x;", "mov.u32 %n, %ntid.x;", "mov.u32 %t, %tid.x;", "mad.lo.u32 %i, %i, %n, %t;"]  # fmt: skip
    return kernel("\n".join([*start, *body, "ret;"]), ", ".join(parameters), "example", example.arch)


def inputs(example: Example) -> list[tuple]:
    if example.values is not None:
        kinds = example.sources
        return [tuple(round_float(v, k) if k in FLOATS else v for v, k in zip(row, kinds, strict=True)) for row in example.values]
    count = {1: 27, 2: 24, 3: 12}.get(len(example.sources), 5)
    rows = list(itertools.product(*(edge_values(kind, count) for kind in example.sources)))
    rng = random.Random(example.opcode)
    for _ in range(200):  # operands of similar size, where rounding is hard
        rows.append(
            tuple(
                round_float(rng.uniform(-2, 2) * 2.0 ** rng.randint(-3, 3), kind) if kind in FLOATS else rng.choice(edge_values(kind, 22))
                for kind in example.sources
            )
        )
    return rows


def encode(values, kind: str) -> np.ndarray:
    patterns = [bits_of_float(v, kind) if kind in FLOATS else int(v) & ((1 << 8 * size_of(kind)) - 1) for v in values]
    return np.array(patterns, dtype=f"u{size_of(kind)}")


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"{i}-{e.opcode}" for i, e in enumerate(EXAMPLES)])
def test_example(example):
    rows = inputs(example)
    columns = [encode(column, kind) for column, kind in zip(zip(*rows, strict=True), example.sources, strict=True)]
    threads = 64
    blocks = -(-len(rows) // threads)
    columns = [np.concatenate([c, np.repeat(c[-1:], blocks * threads - len(c))]) for c in columns]
    out = np.zeros(blocks * threads, dtype=f"u{size_of(example.result)}")
    simulate(
        program(example),
        (blocks, 1, 1),
        (threads, 1, 1),
        [out, *columns],
        collect=Collect(counters=False),
        engine="numpy",
    )
    with np.errstate(all="ignore"):
        for row, pattern in zip(rows, out.tolist(), strict=False):
            expected = example.reference(*row)
            kind = example.result
            if kind not in FLOATS:
                wanted = int(expected) & ((1 << 8 * size_of(kind)) - 1)
                assert pattern == wanted, f"{example.opcode} {row}: {pattern:#x}, expected {wanted:#x}"
                continue
            check_float(example, row, pattern, expected)


def check_float(example, row, pattern, expected):
    kind = example.result
    got = float_of_bits(pattern, kind)
    what = f"{example.opcode} {row}: {got!r} ({pattern:#x}), expected {expected!r}"
    if example.tolerance:
        assert abs(got - float(expected)) <= example.tolerance * max(abs(float(expected)), 1e-30), what
        return
    if isinstance(expected, Fraction):
        wanted = round_fraction(expected, kind, example.rounding)
    else:
        wanted = round_float(expected, kind, example.rounding)
    if math.isnan(wanted):
        assert math.isnan(got), what
        if kind == "f32" and not example.opcode.startswith(("mov", "selp", "copysign")):
            narrowed = example.opcode.startswith("cvt") and example.sources == ("f64",)  # keeps the upper bits of its payload
            assert pattern == (0x7FC00000 if narrowed else 0x7FFFFFFF), what
        return
    assert got == wanted, f"{what} = {wanted!r}"
    if not isinstance(expected, Fraction) and expected == 0:
        assert math.copysign(1, got) == math.copysign(1, expected), what


@pytest.mark.parametrize(
    ("opcode", "source", "result", "given", "wanted"),  # as an H100 has it
    [
        ("cvt.rna.satfinite.tf32.f32", "f32", "tf32", [0x7F800000, 0xFF800000, 0x7F7FF000, 0x3F801000], [0x7F7FE000, 0xFF7FE000, 0x7F7FE000, 0x3F802000]),
        ("cvt.rn.satfinite.f16.f32", "f32", "f16", [0x7F800000, 0xC7800000, 0x477FE000, 0x387FC000], [0x7BFF, 0xFBFF, 0x7BFF, 0x03FF]),
        ("cvt.rz.relu.satfinite.bf16.f32", "f32", "bf16", [0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x387FC000], [0x7F7F, 0, 0x7F7F, 0x387F]),
        ("ex2.approx.ftz.bf16", "bf16", "bf16", [0xC2FC, 0xC2FE, 0xC302, 0x8001], [0x0080, 0, 0, 0x3F80]),
        ("abs.ftz.f16", "f16", "f16", [0x8001, 0x83FF, 0x8400, 0xBC00], [0, 0, 0x0400, 0x3C00]),
        ("neg.ftz.f16x2", "f16x2", "f16x2", [0x3F800001, 0x83FFBC00], [0xBF808000, 0x00003C00]),
        ("rcp.approx.ftz.f64", "f64", "f64", [1, 1 << 63, 0x7FE0000000000000], [0x7FF << 52, 0xFFF << 52, 0]),
    ],
)  # fmt: skip
def test_what_a_modifier_makes_of_values_at_the_edge_of_a_format(opcode, source, result, given, wanted):
    case = Example(opcode, None, (source,), result)
    out = np.zeros(len(given), f"u{size_of(result)}")
    simulate(
        program(case), (1, 1, 1), (len(given), 1, 1), [out, np.array(given, f"u{size_of(source)}")],
        collect=Collect(counters=False), engine="numpy",
    )  # fmt: skip
    assert [hex(x) for x in out.tolist()] == [hex(x) for x in wanted]


def test_a_reference_that_does_not_tell_its_sources_is_named_and_so_it_is_when_its_file_is_imported_again():
    for _ in range(2):
        with without_handler("sad"):

            @base.instruction("sad")
            def vmost(op):
                """The same function of the same file, however often that is imported."""

            with pytest.raises(
                TypeError, match=r"The example of vmax2\.u32\.u32\.u32 has a built-in function as its reference: write lambda"
            ):
                base.example("vmax2.u32.u32.u32", reference=max)
            again = vmost

            @base.instruction("sad")
            def vmost(op):
                """The same."""

            assert REGISTRY["sad"] == [(None, vmost)] and again is not vmost
            with pytest.raises(ValueError, match="sad has two handlers"):

                @base.instruction("sad")
                def other(op):
                    """Another function."""


def test_every_arithmetic_handler_has_an_example():
    """A family file whose instructions compute values keeps an example beside each."""
    covered = {example.opcode for example in EXAMPLES}
    templates = " ".join(example.template or "" for example in EXAMPLES)
    missing = []
    for opcode, handlers in REGISTRY.items():
        for _, handler in handlers:
            if handler.__module__.rsplit(".", 1)[1] not in ("integer", "bits", "floating", "move"):
                continue
            if not any(c == opcode or c.startswith(opcode + ".") for c in covered) and opcode not in templates and opcode != "isspacep":
                missing.append(opcode)
    assert len(REGISTRY) > 60
    assert missing == []
