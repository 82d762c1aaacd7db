"""Instructions that run both in the machine and on a GPU, from the same PTX and the same values.

`CASES` are the examples beside the handlers and `FORMS`, further forms of the same instructions: every rounding mode,
flag, comparison and type that the compiler emits. The forms need no reference: the hardware is their reference, either
directly (tests/gpu/test_instructions.py) or as recorded in helpers/data/isa_h200.json (test_recorded.py).
"""

from __future__ import annotations

import hashlib
import itertools
import random

import numpy as np

from helpers.sim import Collect, simulate
from helpers.sim.isa import EXAMPLES, Example
from helpers.sim.isa.base import DTYPES
from helpers.sim.isa.exact import FORMATS
from tests.sim.isa.test_isa import encode, inputs, program, size_of
from tests.sim.ptx_text import HEADER

THREADS = 64
RANDOM_ROWS = 256
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
WITH_NAN = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
UNSIGNED, SIGNED = ("u16", "u32", "u64"), ("s16", "s32", "s64")
MODES = ("rn", "rz", "rm", "rp")


def form(opcode, sources, result=None, template=None, arch="sm_90", tolerance=0.0) -> Example:
    """One form of an instruction. sources: PTX types separated by blanks."""
    sources = tuple(sources.split())
    types = [part for part in opcode.split(".")[1:] if part in DTYPES]
    return Example(opcode, None, sources, result or types[0], None, template, "rn", tolerance, arch)


def each(text: str):
    """Every combination of the alternatives in {a|b|…}: each("add{|.sat}.f32")."""
    parts = [part.split("|") if i % 2 else [part] for i, part in enumerate(text.replace("}", "{").split("{"))]
    return ["".join(choice) for choice in itertools.product(*parts)]


def _floats():
    for t in ("f32",):
        for op in each("{add|sub|mul}{.rn|.rz|.rm|.rp}{|.ftz}{|.sat}.f32"):
            yield form(op, "f32 f32")
        for op in each("fma{.rn|.rz|.rm|.rp}{|.ftz}{|.sat}.f32"):
            yield form(op, "f32 f32 f32")
        for op in each("div{.rn|.rz|.rm|.rp}{|.ftz}.f32"):
            yield form(op, "f32 f32")
        for op in each("{rcp|sqrt}{.rn|.rz|.rm|.rp}{|.ftz}.f32"):
            yield form(op, t)
        for op in each("{min|max}{|.ftz}{|.NaN}{|.xorsign.abs}.f32"):
            yield form(op, "f32 f32")
        for op in each("{abs|neg}{|.ftz}.f32"):
            yield form(op, t)
    for op in each("{add|sub|mul|div}{.rn|.rz|.rm|.rp}.f64"):
        yield form(op, "f64 f64")
    for op in each("fma{.rn|.rz|.rm|.rp}.f64"):
        yield form(op, "f64 f64 f64")
    for op in [*each("{rcp|sqrt}{.rn|.rz|.rm|.rp}.f64"), "abs.f64", "neg.f64"]:
        yield form(op, "f64")
    for op in ("min.f64", "max.f64", "copysign.f64"):
        yield form(op, "f64 f64")
    for t in ("f16", "f16x2"):
        for op in each("{add|sub|mul}{|.rn}{|.ftz}{|.sat}." + t) + each("{min|max}{|.ftz}{|.NaN}{|.xorsign.abs}." + t):
            yield form(op, f"{t} {t}")
        for op in each("fma.rn{|.ftz}{|.sat|.relu}." + t):
            yield form(op, f"{t} {t} {t}")
        for op in each("{abs|neg}." + t):
            yield form(op, t)
    for t in ("bf16", "bf16x2"):
        for op in each("{add|sub|mul}{|.rn}." + t) + each("{min|max}{|.NaN}{|.xorsign.abs}." + t):
            yield form(op, f"{t} {t}")
        for op in each("fma.rn{|.relu}." + t):
            yield form(op, f"{t} {t} {t}")
        for op in each("{abs|neg}." + t):
            yield form(op, t)
    for op in each("testp{.finite|.infinite|.number|.notanumber|.normal|.subnormal}{.f32|.f64}"):
        yield form(op, op[-3:], "pred")


def _integers():
    for t in UNSIGNED + SIGNED:
        for op in each("{add|sub|min|max|mul.lo|mul.hi}."):
            yield form(op + t, f"{t} {t}")
        for op in each("mad{.lo|.hi}."):
            yield form(op + t, f"{t} {t} {t}")
        yield form(f"sad.{t}", f"{t} {t} {t}")
        for op in ("div", "rem"):
            yield form(f"{op}.{t}", f"{t} {t}")
        if t[1:] != "64":
            wide = t[0] + str(2 * int(t[1:]))
            yield form(f"mul.wide.{t}", f"{t} {t}", wide)
            yield form(f"mad.wide.{t}", f"{t} {t} {wide}", wide)
    for t in SIGNED:
        yield form(f"abs.{t}", t)
        yield form(f"neg.{t}", t)
    for op in each("mul24{.lo|.hi}{.u32|.s32}"):
        yield form(op, f"{op[-3:]} {op[-3:]}")
    for op in each("mad24{.lo|.hi}{.u32|.s32}"):
        yield form(op, f"{op[-3:]} {op[-3:]} {op[-3:]}")
    yield form("mad24.hi.sat.s32", "s32 s32 s32")
    yield form("mad.hi.sat.s32", "s32 s32 s32")
    for op in each("dp4a{.u32|.s32}{.u32|.s32}") + each("dp2a{.lo|.hi}{.u32|.s32}{.u32|.s32}"):
        a, b = op.split(".")[-2:]
        yield form(op, f"{a} {b} {'u32' if a == b == 'u32' else 's32'}", "b32")
    for op in each("{min|max}.{u16x2|s16x2}") + each("{min|max}.relu.{s32|s16x2}"):
        yield form(op, "b32 b32", "b32")
    yield form("add.u16x2", "b32 b32", "b32")
    chains = {  # what the first instruction of a carry chain leaves for the next
        "addc": "add.cc.T {d}, {a}, {b}; addc.T {d}, {b}, {c};",
        "subc": "sub.cc.T {d}, {a}, {b}; subc.T {d}, {b}, {c};",
        "madc.hi": "mad.lo.cc.T {d}, {a}, {b}, {c}; madc.hi.T {d}, {a}, {b}, {d};",
        "madc.lo": "add.cc.T {d}, {a}, {b}; madc.lo.T {d}, {a}, {b}, {c};",
        "subc.cc": "sub.cc.T {d}, {a}, {b}; subc.cc.T {d}, {b}, {c}; subc.T {d}, {d}, {a};",
        "mad.hi.cc": "mad.hi.cc.T {d}, {a}, {b}, {c}; addc.T {d}, {d}, {a};",
    }
    for t, (name, template) in itertools.product(("u32", "s32", "u64", "s64"), chains.items()):
        yield form(f"{name}.{t}", f"{t} {t} {t}", template=template.replace(".T", f".{t}"))


def _bits():
    for op in [*each("{and|or|xor}.b"), "not.b", "cnot.b"]:
        for n in ("16", "32", "64"):
            yield form(op + n, f"b{n}" if op[-3:] == "ot." or "not" in op else f"b{n} b{n}")
    for t in ("b16", "b32", "b64"):
        yield form(f"shl.{t}", f"{t} u32")
    for t in ("b32", "b64", *UNSIGNED, *SIGNED):
        yield form(f"shr.{t}", f"{t} u32")
    for op in each("{bfe}.{u32|s32|u64|s64}"):
        yield form(op, f"{op[-3:]} u32 u32")
        yield form(op, f"{op[-3:]} u32 u32", template=op + " {d}, {a}, 7, 11;")
    for t in ("b32", "b64"):
        yield form(f"bfi.{t}", f"{t} {t} u32 u32")
        yield form(f"bfi.{t}", f"{t} {t}", template=f"bfi.{t} {{d}}, {{a}}, {{b}}, 5, 13;")
    for op in each("bfind{|.shiftamt}.{u32|s32|u64|s64}"):
        yield form(op, op[-3:], "u32")
    for op in each("bmsk{.clamp|.wrap}.b32"):
        yield form(op, "u32 u32")
    for op in each("szext{.clamp|.wrap}.{u32|s32}"):
        yield form(op, f"{op[-3:]} u32")
    for op in each("prmt.b32{|.f4e|.b4e|.rc8|.ecl|.ecr|.rc16}"):
        yield form(op, "b32 b32 b32", "b32")
    for table in range(0, 256, 17):
        yield form("lop3.b32", "b32 b32 b32", template=f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};")
    yield form("mov.b32", "b16 b16", "b32", "mov.b32 {d}, {{{a}, {b}}};")
    yield form("mov.b64", "b16 b16 b16 b16", "b64", "mov.b64 {d}, {{{a}, {b}, {c}, {e}}};")
    yield form("mov.b32", "b32", "b16", "{{ .reg .b16 t; mov.b32 {{t, {d}}}, {a}; }}")


def _choices():
    for t in ("f32", "f64", "f16", "bf16", "f16x2"):
        ftz = "{|.ftz}" if t in ("f32", "f16") else ""
        for op in each("setp.{" + "|".join(COMPARISONS + WITH_NAN) + "}" + ftz + "." + t):
            if t == "f16x2":
                yield form(op, f"{t} {t}", "pred", f"{{{{ .reg .pred t; {op} t|{{d}}, {{a}}, {{b}}; }}}}")
            else:
                yield form(op, f"{t} {t}", "pred")
    for t in UNSIGNED + SIGNED:
        for name in COMPARISONS + (("lo", "ls", "hi", "hs") if t[0] == "u" else ()):
            yield form(f"setp.{name}.{t}", f"{t} {t}", "pred")
    for op in each("setp{.ge}{.and|.or|.xor}.f32"):
        yield form(op, "f32 f32 pred", "pred")
    for op in each("set.{lt|ne|nan}{|.ftz}{.u32|.s32|.f32}.f32"):
        yield form(op, "f32 f32")
    for op in each("set.{gt|neu}.f16.f16") + each("set.{gt|neu}.f16x2.f16x2") + each("set.{gt|neu}.u32.f64"):
        t = op.rsplit(".", 1)[1]
        yield form(op, f"{t} {t}")
    for t in ("b16", "b32", "b64", "f64"):
        yield form(f"selp.{t}", f"{t} {t} pred")
    for t in ("b32", "b64", "f32", "f64", "u16"):
        yield form(f"slct.{t}.s32", f"{t} {t} s32")
        yield form(f"slct.{t}.f32", f"{t} {t} f32")
        yield form(f"slct.ftz.{t}.f32", f"{t} {t} f32")


def _conversions():
    ints = ("u8", "s8", *UNSIGNED, *SIGNED)

    def width(t):  # registers hold no single bytes: a wider one does
        return {"u8": "u32", "s8": "s32"}.get(t, t)

    for d, s, sat in itertools.product(ints, ints, ("", ".sat")):
        to, of = np.iinfo(DTYPES[d]), np.iinfo(DTYPES[s])
        if d != s and not (sat and to.min <= of.min and of.max <= to.max):  # .sat only where it clamps
            yield form(f"cvt{sat}.{d}.{s}", width(s), width(d))
    for s, d, mode in itertools.product(("f16", "bf16", "f32", "f64"), ints, ("rni", "rzi", "rmi", "rpi")):
        if s == "bf16" and d in ("u8", "s8"):
            continue  # there is none
        for ftz in ("", ".ftz") if s == "f32" else ("",):
            yield form(f"cvt.{mode}{ftz}.{d}.{s}", s, width(d))
    for s, d, mode in itertools.product(ints, ("f16", "bf16", "f32", "f64"), MODES):
        if d != "bf16" or s not in ("u8", "s8"):
            yield form(f"cvt.{mode}.{d}.{s}", width(s), d)
    for op in each("cvt{.rn|.rz|.rm|.rp}{|.ftz}{|.sat}.f32.f64"):
        yield form(op, "f64")
    for op in each("cvt{.rn|.rz|.rm|.rp}{|.sat}.f16.f64") + each("cvt{|.sat}.f64.f64"):
        yield form(op, "f64")
    for op in each("cvt{.rn|.rz|.rm|.rp}{|.ftz}{|.sat}.f16.f32"):
        yield form(op, "f32")
    for op in each("cvt{.rn|.rz}{|.relu}{.bf16|.f16}.f32"):
        yield form(op, "f32")
    for op in each("cvt{.rn|.rz}{|.relu}{.bf16x2|.f16x2}.f32"):
        yield form(op, "f32 f32")
    for op in each("cvt{|.ftz}{|.sat}.f32.f16") + each("cvt{|.sat}.f64.f16") + each("cvt{.rni|.rzi|.rmi|.rpi}.f16.f16"):
        yield form(op, "f16")
    yield form("cvt.f32.bf16", "bf16")
    for op in each("cvt{|.rni|.rzi|.rmi|.rpi}{|.ftz}{|.sat}.f32.f32") + each("cvt{|.ftz}{|.sat}.f64.f32"):
        yield form(op, "f32")
    for op in each("cvt{.rni|.rzi|.rmi|.rpi}.f64.f64"):
        yield form(op, "f64")
    for op in ("cvt.rna.tf32.f32", *each("cvt{.rn|.rz}{|.relu}.tf32.f32")):
        yield form(op, "f32")
    for op in ("cvt.rna.satfinite.tf32.f32", *each("cvt{.rn|.rz}{|.relu}.satfinite{.bf16|.f16}.f32")):
        yield form(op, "f32")
    for op in each("cvt{.rn|.rz}{|.relu}.satfinite{.bf16x2|.f16x2}.f32"):
        yield form(op, "f32 f32")
    for op in each("cvt.pack.sat{.u16|.s16}.s32"):
        yield form(op, "s32 s32", "b32")
    for op in each("cvt.pack.sat{.u8|.s8|.u4|.s4|.u2|.s2}.s32.b32"):
        yield form(op, "s32 s32 b32", "b32")
    for op in each("cvt.rn.satfinite{|.relu}.{e4m3x2|e5m2x2}.f32"):
        yield form(op, "f32 f32", "b16")
    for op in each("cvt.rn.satfinite{|.relu}.{e4m3x2|e5m2x2}.f16x2"):
        yield form(op, "f16x2", "b16")
    for op in each("cvt.rn{|.relu}.f16x2.{e4m3x2|e5m2x2}"):
        yield form(op, "b16", "f16x2")


FORMS = (*_floats(), *_integers(), *_bits(), *_choices(), *_conversions())


def key(case: Example) -> str:
    """What tells one case from another in the recorded table."""
    chosen = " (chosen values)" if case.values else ""
    return f"{case.template or case.opcode} [{' '.join(case.sources)} -> {case.result}]{chosen}"


CASES = tuple({key(case): case for case in (*(e for e in EXAMPLES if not e.tolerance), *FORMS)}.values())
NAMES = tuple(f"{i}-{case.opcode}" for i, case in enumerate(CASES))


_COLUMNS: dict[int, tuple[np.ndarray, ...]] = {}


def columns(case: Example) -> tuple[np.ndarray, ...]:
    """One array per source, in whole blocks: the example's values, then random bits where nothing is undefined."""
    if id(case) not in _COLUMNS:  # cases live as long as this module
        _COLUMNS[id(case)] = _columns(case)
    return _COLUMNS[id(case)]


def _columns(case):
    rows = inputs(case)
    made = [encode(column, kind) for column, kind in zip(zip(*rows, strict=True), case.sources, strict=True)]
    if case.values is None:
        rng = random.Random(key(case))
        for i, kind in enumerate(case.sources):
            bits = 1 if kind == "pred" else 8 * size_of(kind)
            more = [rng.getrandbits(bits) for _ in range(RANDOM_ROWS)]
            made[i] = np.concatenate([made[i], np.array(more, made[i].dtype)])
    if case.opcode.split(".")[0] in ("div", "rem") and case.result not in FORMATS:
        divisor, dividend = made[1], made[0]  # what a division by zero, or one that overflows, gives is not defined
        unsigned, bits = divisor.dtype.type, 8 * divisor.itemsize
        bad = (divisor == 0) | ((dividend == unsigned(1 << bits - 1)) & (divisor == unsigned((1 << bits) - 1)))
        made = [np.where(bad, column.dtype.type(3), column) for column in made]
    padding = -len(made[0]) % THREADS
    return tuple(np.concatenate([column, np.repeat(column[-1:], padding)]) for column in made)


def room(case: Example) -> np.ndarray:
    return np.zeros(len(columns(case)[0]), f"u{size_of(case.result)}")


def machine(case: Example) -> np.ndarray:
    """Result patterns from the machine."""
    out = room(case)
    args = [out, *(column.copy() for column in columns(case))]
    grid = (len(out) // THREADS, 1, 1)
    simulate(program(case), grid, (THREADS, 1, 1), args, collect=Collect(counters=False), engine="numpy")
    return out


def module(cases) -> str:
    """One PTX module with an entry e0, e1, … for each case; they must be for one architecture."""
    arch = {case.arch for case in cases}
    header = HEADER.format(arch=arch.pop())
    texts = [program(case).ptx.removeprefix(header) for case in cases]
    return header + "\n".join(text.replace(".entry example(", f".entry e{i}(", 1) for i, text in enumerate(texts))


_NANS = {  # bits: exponent, fraction, the one NaN that stands for all
    16: (0x7C00, 0x3FF, 0x7FFF),
    32: (0x7F800000, 0x7FFFFF, 0x7FFFFFFF),
    64: (0x7FF << 52, (1 << 52) - 1, (1 << 63) - 1),
}


def without_payloads(case: Example, patterns: np.ndarray) -> np.ndarray:
    """The patterns with every NaN made the same one: PTX does not say which one a NaN is."""
    kind = case.result
    if kind not in (*FORMATS, "f16x2", "bf16x2", "tf32"):
        return patterns
    bits = 16 if "16" in kind else 8 * size_of(kind)
    exponent, fraction, nan = _NANS[bits]
    if kind.startswith("bf16"):
        exponent, fraction = 0x7F80, 0x7F
    parts = patterns.view(f"u{bits // 8}")
    t = parts.dtype.type
    bad = ((parts & t(exponent)) == t(exponent)) & ((parts & t(fraction)) != 0)
    return np.where(bad, t(nan), parts).view(patterns.dtype)


def digest(*arrays: np.ndarray) -> str:
    """A short fingerprint of the bytes of arrays."""
    made = hashlib.sha256()
    for array in arrays:
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()[:16]
