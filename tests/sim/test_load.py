"""What the loader says of instructions: the facts of an Op, for every handler and for single ones.

Tests of: helpers.sim.code.program, helpers.sim.code.sites, helpers.sim.isa.base
"""

import ast
import dataclasses
import re

import pytest

from helpers.errors import RunError
from helpers.sim import isa
from helpers.sim.code.program import Effect, Results
from helpers.sim.code.sites import AccessKind, ChargedSite, CostRule
from helpers.sim.load import load
from tests import ROOT
from tests.sim.isa.test_isa import program

KERNEL = """.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_param_0) {{
.reg .pred %p<4>;
.reg .b16 %h<4>;
.reg .b32 %r<8>;
.reg .f32 %f<8>;
.reg .b64 %rd<8>;
.shared .align 16 .b8 tile[1024];
{body}
ret;
}}
"""


def ops(body: str):
    return load(KERNEL.format(body=body), "k").ops


def one(body: str):
    return ops(body)[0]


@pytest.mark.parametrize(
    ("text", "effect", "reads", "writes"),
    [
        ("add.s32 %r1, %r2, %r3;", Effect.PURE, ["%r2", "%r3"], ["%r1"]),
        ("@!%p1 add.s32 %r1, %r2, 4;", Effect.PURE, ["%r2", "%p1"], ["%r1"]),
        ("add.cc.u32 %r1, %r2, %r3;", Effect.PURE, ["%r2", "%r3"], ["%r1", "%carry"]),
        ("addc.u32 %r1, %r2, %r3;", Effect.PURE, ["%r2", "%r3", "%carry"], ["%r1"]),
        ("setp.lt.s32 %p1|%p2, %r1, %r2;", Effect.PURE, ["%r1", "%r2"], ["%p1", "%p2"]),
        ("mov.u32 %r1, %clock;", Effect.MACHINE, [], ["%r1"]),
        ("ld.global.v2.f32 {%f1, %f2}, [%rd1+8];", Effect.LOAD, ["%rd1"], ["%f1", "%f2"]),
        ("st.shared.f32 [%r1], %f1;", Effect.STORE, ["%r1", "%f1"], []),
        ("atom.global.add.u32 %r1, [%rd1], %r2;", Effect.ATOMIC, ["%rd1", "%r2"], ["%r1"]),
        ("red.global.add.u32 [%rd1], %r2;", Effect.ATOMIC, ["%rd1", "%r2"], []),
        ("cp.async.ca.shared.global [%r1], [%rd1], 16;", Effect.COPY, ["%r1", "%rd1"], []),
        ("cp.async.wait_group 0;", Effect.COPY, [], []),
        ("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;", Effect.EXCHANGE, ["%r2"], ["%r1", "%p1"]),
        ("bar.sync 0;", Effect.BARRIER, [], []),
        ("fence.acq_rel.gpu;", Effect.FENCE, [], []),
        ("prefetch.global.L2 [%rd1];", Effect.MACHINE, [], []),
        ("nanosleep.u32 %r1;", Effect.MACHINE, ["%r1"], []),
        ("mbarrier.init.shared.b64 [%r1], %r2;", Effect.MACHINE, ["%r1", "%r2"], []),
        ("exit;", Effect.END, [], []),
    ],
)  # fmt: skip
def test_effects_and_registers(text, effect, reads, writes):
    program = load(KERNEL.format(body=text), "k")
    op = program.ops[0]
    assert op.effect is effect
    assert sorted(program.names[r] for r in op.reads) == sorted(reads)
    assert sorted(program.names[r] for r in op.writes) == sorted(writes)


def test_an_op_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        one("add.s32 %r1, %r2, %r3;").writes = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        one("ld.u32 %r1, [%rd1];").sites[0].space = "global"


def test_how_lanes_differ():
    assert one("vote.sync.ballot.b32 %r1, %p1, -1;").results is Results.PER_WARP
    assert one("redux.sync.add.s32 %r1, %r2, -1;").results is Results.PER_WARP
    assert one("shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;").results is Results.PER_LANE
    assert one("ld.local.u32 %r1, [%rd1];").results is Results.PER_LANE
    assert one("ld.global.u32 %r1, [%rd1];").results is Results.LIKE_SOURCES


def test_sites_name_their_address_and_their_rule():
    reads, writes = one("cp.async.ca.shared.global [%r1], [%rd1+4], 16;").sites
    assert (reads.space, reads.op, reads.rule, reads.address.offset) == ("global", AccessKind.COPY, CostRule.GLOBAL, 4)
    assert (writes.space, writes.op, writes.rule, writes.address.offset) == ("shared", AccessKind.COPY, CostRule.COPY, 0)
    (site,) = one("ld.u32 %r1, [%rd1];").sites
    assert site.generic and site.rule is CostRule.NONE
    assert ChargedSite(site, site.width).rule_in("shared") is CostRule.SHARED_LOAD
    assert ChargedSite(site, site.width, "LDSM.16.M88").rule_in("shared") is CostRule.MATRIX


def test_barriers_and_order():
    assert one("bar.sync 0;").whole_block and one("barrier.sync.aligned 1;").whole_block
    assert not one("bar.sync 1, 64;").whole_block and not one("bar.arrive 1, 64;").whole_block
    warp = one("bar.warp.sync -1;")
    assert warp.effect is Effect.BARRIER and warp.rendezvous == 1 and not warp.ends_block
    assert one("membar.gl;").orders and not one("membar.cta;").orders
    assert one("ld.acquire.gpu.global.u32 %r1, [%rd1];").orders and not one("ld.acquire.cta.global.u32 %r1, [%rd1];").orders


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("cvt.rna.wide.tf32.f32 %r1, %f1;", ".wide of"),
        ("fma.rn.oob.f16 %h1, %h1, %h1, %h1;", ".oob of"),
        ("add.f32.bf16 %f1, %h1, %f1;", ".f32 of"),  # of two types, where the handler reads one
        ("cvt.rn.satfinite.e2m1x2.f32 %h1, %f1, %f2;", ""),
        ("mul.lo.sat.s32 %r1, %r2, %r3;", ".sat of"),
        ("ld.global.compressed.u32 %r1, [%rd1];", ".compressed of"),
        ("atom.global.add.level.u32 %r1, [%rd1], %r2;", ".level of"),
        ("shfl.sync.bfly.wrap.b32 %r1, %r2, 1, 31, -1;", ".wrap of"),
        ("bar.sync.relaxed 0;", ".relaxed of"),
        ("fence.acq_rel.gpu.shared;", ".shared of"),
        ("ldmatrix.sync.aligned.m8n8.x1.trans.row.shared.b16 {%r1}, [%r2];", ".row of"),
        ("add.s32 %r1, %r2, %r3, %r4;", "operand 4 of"),
        ("st.global.u32 [%rd1], %r1, %rd2;", "operand 3 of"),
        ("cp.async.ca.shared.global [%r1], [%rd1], 16, %r2, %rd2;", "operand 5 of"),
    ],
)
def test_what_a_handler_does_not_read_is_refused_by_name(text, part):
    with pytest.raises(RunError, match=re.escape(f"the machine does not know {part and part + ' '}the instruction `{text[:-1]}")):
        one(text)


def test_a_choice_of_a_register_s_parts_is_refused_as_an_operand():
    for text, named in (
        ("mov.u32 %r1, %r2.b0;", "%r2.b0"),
        ("add.s32 %r1, %r2, %r3.h1;", "%r3.h1"),
        ("ld.global.u32 %r1, [%rd1.b0];", "%rd1.b0"),
    ):
        with pytest.raises(RunError, match=re.escape(f"has the operand {named}: the machine does not know operands that choose parts")):
            one(text)


@pytest.mark.parametrize(
    "text",
    [
        "ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.v2.f32 {%f1, %f2}, [%rd1], %rd2;",
        "st.relaxed.gpu.global.L1::evict_last.u32 [%rd1], %r1;",
        "red.relaxed.sys.global.add.noftz.f16x2 [%rd1], %r1;",
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%r1], [%rd1], 16, %r2, %rd2;",
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd1, 0.5;",
        "applypriority.global.L2::evict_normal [%rd1], 128;",
        "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;",
        "rcp.approx.ftz.f64 %rd1, %rd2;",
        "barrier.cluster.arrive.release.aligned;",
        "bra.uni L1;\nL1:",
    ],
)
def test_what_changes_nothing_is_allowed(text):
    assert one(text).text.rstrip(";") == text.split(";")[0]


def test_jumps_name_positions():
    found = ops("@%p1 bra L1;\nadd.s32 %r1, %r1, 1;\nL1:\nmov.u32 %r2, 0;")
    assert found[0].effect is Effect.JUMP and found[0].targets == (2,) and found[0].ends_block


@pytest.mark.parametrize("example", isa.EXAMPLES, ids=lambda example: example.opcode)
def test_what_computes_lane_by_lane_is_pure(example):
    found = [op for op in load(program(example).ptx, "example").ops if op.opcode == example.opcode]
    assert found and all(op.effect is Effect.PURE and op.writes and op.results is Results.LIKE_SOURCES for op in found)


# Whose business names of opcodes are: the instruction set, native code for single instructions, copying calls, and SASS with
# what finds the PTX that ptxas made it of.
NAMES_ALLOWED = (
    "isa/", "native/operations.py", "native/access.py", "native/exchange.py", "native/products.py", "code/inline.py",
    "code/sass", "code/merged_accesses.py", "counting/machine_code/",
)  # fmt: skip
AMBIGUOUS = {"ld", "st", "atom", "red"}  # parts of metrics' names, too
OPCODES = {name.split(".")[0] for name in isa.REGISTRY} - {"call", "set"}


def test_nobody_guesses_from_names_of_opcodes():
    """Outside of the instruction set nothing compares an instruction's name, or keeps a list of such names."""
    folder = ROOT / "helpers" / "sim"
    guesses = []
    for path in sorted(folder.rglob("*.py")):
        where = path.relative_to(folder).as_posix()
        if where.startswith(NAMES_ALLOWED):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                texts = {ast.unparse(side).rsplit(".", 1)[-1] for side in (node.left, *node.comparators)}
                constants = {c.value for side in node.comparators for c in ast.walk(side) if isinstance(c, ast.Constant)}
                if texts & {"name", "opcode"} and OPCODES & {str(c).split(".")[0] for c in constants}:
                    guesses.append(f"{where}:{node.lineno}: {ast.unparse(node)}")
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                words = {e.value.split(".")[0] for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
                if len(words & OPCODES - AMBIGUOUS) > 1:
                    guesses.append(f"{where}:{node.lineno}: {ast.unparse(node)[:80]}")
    assert guesses == []
