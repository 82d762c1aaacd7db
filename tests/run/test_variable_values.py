"""What main gives a kernel by cudaMemcpyToSymbol, given by a launch.

Tests of: helpers.run.c_types, helpers.run.struct_arguments
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.errors import LaunchError, RunError
from helpers.run.kernel import compile
from helpers.run.variable_values import forgotten
from helpers.sim import launch as launches

SOURCE = """
#define TAPS 3
__constant__ float mask[TAPS];  // what main fills
__constant__ int rounds, first = 2;
namespace scaled { __device__ double by[2] = {1, 10}; }
struct Pair { float a; int b; };
__constant__ Pair pair;
__device__ int untouched;
__global__ void blur(float *out, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int round = 0; round < rounds; ++round)
        for (int tap = 0; tap < TAPS; ++tap) sum += mask[tap] * (i + tap);
    out[i] = sum * scaled::by[i & 1] + pair.a * pair.b + first;
}
int main() {
    cudaMemcpyToSymbol(mask, host, sizeof(host));
    cudaMemcpyToSymbolAsync(&rounds, &r, 4);
    // cudaMemcpyToSymbol(pair, &p, 8);
    cudaMemcpyToSymbol<Pair>(untouched, p);
    blur<<<1, 32>>>(out, 8);
}
"""
MASK = np.array([1, 2, 4], np.float32)


@pytest.fixture(scope="module")
def blur():
    return compile(SOURCE, "blur")


def launch(kernel, engine=None, **options):
    out = np.zeros(8, np.float32)
    run = kernel.launch(1, 32, [out, 8], on="cpu", **options)
    return out, run


def expected(mask, rounds, by=(1, 10), pair=(0, 0)):
    i = np.arange(8)
    sums = sum(weight * (i + tap) for tap, weight in enumerate(mask)) * rounds
    return (sums * np.array(by)[i & 1] + pair[0] * pair[1] + 2).astype(np.float32)


def test_variables_hold_what_the_launch_gives_them_and_what_is_not_given_stays(blur):
    assert (launch(blur)[0] == expected((0, 0, 0), 0)).all()
    out, run = launch(blur, symbols={"mask": MASK, "rounds": 2})
    assert (out == expected(MASK, 2)).all()
    assert run.findings == [] and len(run.remarks) == 1
    pair = np.array([(0.5, 6)], [("a", "f4"), ("b", "i4")])
    out, _ = launch(blur, symbols={"mask": [3.0], "rounds": np.int32(1), "by": [2, 3], "pair": pair})
    assert (out == expected((3, 0, 0), 1, (2, 3), (0.5, 6))).all(), "a list fills the beginning, a namespace may be left out"
    assert (launch(blur)[0] == expected((0, 0, 0), 0)).all(), "the next launch begins with what the source says"


def test_both_engines_and_the_count_of_instructions_see_the_values(blur):
    few = launch(blur, symbols={"rounds": 1})[1].counters
    more = launch(blur, symbols={"rounds": 9})[1].counters
    stepped, run = launch(blur, symbols={"mask": MASK, "rounds": 9}, in_turn="upwards")
    assert run.engine == "numpy"
    assert (stepped == launch(blur, symbols={"mask": MASK, "rounds": 9})[0]).all()
    assert more["smsp__inst_executed.sum"] > few["smsp__inst_executed.sum"]
    assert more["smsp__inst_executed.sum"] == run.counters["smsp__inst_executed.sum"]


def test_a_variable_that_main_would_fill_is_not_left_without_a_word(blur):
    assert [text.split("`")[1] for text in launch(blur)[1].remarks] == ["mask", "rounds", "pair"]
    assert "a kernel cannot write __constant__ memory" in launch(blur)[1].remarks[2]
    assert "symbols={'mask': array}" in repr(launch(blur)[1])
    assert [text.split("`")[1] for text in forgotten(blur.compiled, {"mask": MASK, "pair": 0})] == ["rounds"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mask": MASK.astype(np.float64)}, "is of float, and the array holds float64. Pass array.astype('float32')."),
        ({"mask": np.zeros(4, np.float32)}, "has 16 bytes, and the variable has 12"),
        ({"mask": "abc"}, "pass an array, a number or a list of numbers, not 'abc'"),
        ({"mask": [[1, 2], [3]]}, "pass an array, a number or a list of numbers"),
        ({"mask": np.array([None])}, "an array of Python objects"),
        ({"mask": np.ma.array([1.0], mask=[1])}, "a masked array"),
        ({"rounds": 1.5}, "is of int, which does not hold 1.5"),
        ({"rounds": 2**31}, "is of int, which does not hold 2147483648"),
        ({"rounds": float("nan")}, "is of int, which does not hold nan"),
        ({"pair": 3}, "is of Pair: pass an array of its type, or its bytes"),
        ({"pair": b"123456789"}, "has 9 bytes, and the variable has 8"),
        ({"taps": 3}, "'taps', and the __constant__ and __device__ variables that blur uses are: "),
        ({"untouched": 3}, "'untouched', and the __constant__"),
        ({3: 3}, "give the variables by their names"),
        ([MASK], "give the variables by their names"),
    ],
)
def test_what_cannot_be_a_value_is_refused(blur, given, said):
    with pytest.raises(LaunchError, match=".") as raised:
        launch(blur, symbols=given)
    assert said in raised.value.message


def test_one_mapping_serves_all_kernels_of_a_file():
    source = (
        "__constant__ float gain, bias;\n__global__ void scale(float* a) { a[threadIdx.x] *= gain; }\n"
        "__global__ void shift(float* a) { a[threadIdx.x] += bias; }"
    )
    for entry, wanted in (("scale", 6.0), ("shift", 4.0)):
        array = np.full(32, 3, np.float32)
        compile(source, entry=entry).launch(1, 32, [array], on="cpu", symbols={"gain": 2.0, "bias": 1.0})
        assert np.all(array == wanted)


@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_a_pointer_takes_an_array(engine):
    kernel = compile("__device__ float* table;\n__global__ void look(float* out) { out[threadIdx.x] = table[threadIdx.x]++; }")
    table, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run = kernel.launch(1, 32, [out], on="cpu", symbols={"table": table}, in_turn="upwards" if engine == "numpy" else "")
    assert run.engine == engine and run.findings == []
    assert (out == np.arange(32)).all() and (table == out + 1).all()


ARGS = """
struct Size { int m; double scale; };
struct Args { Size size; const float *a; float *b; };
__constant__ Args args[2];
__global__ void add() {
    const Args& mine = args[blockIdx.x];
    if (mine.a != nullptr && threadIdx.x < mine.size.m) mine.b[threadIdx.x] += mine.size.scale * mine.a[threadIdx.x];
}
"""


@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_structs_are_tuples_and_hold_arrays_as_those_of_parameters_do(engine):
    kernel, whole = compile(ARGS), np.arange(64, dtype=np.float32)
    a, b = whole[1:33], np.ones((2, 32), np.float32)
    given = {"args": [((32, np.float64(2)), a, b[0]), ((8, np.float64(3)), a, b[1])]}
    run = kernel.launch(2, 32, [], on="cpu", symbols=given, trace=engine == "numpy", in_turn="upwards" if engine == "numpy" else "")
    assert run.engine == engine and run.findings == [] and run.remarks == ()
    assert (b == [1 + 2 * a, 1 + 3 * a * (np.arange(32) < 8)]).all()
    if engine == "numpy":
        assert {allocation.name for allocation in run.trace.allocations} >= {"args[0][1]", "args[0][2]", "args[1][2]"}
    kernel = compile(ARGS.replace("args[2]", "args").replace("args[blockIdx.x]", "args"))
    run = kernel.launch(1, 32, [], on="cpu", symbols={"args": given["args"][0]})
    assert run.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 5 + 4, "the machine code loads by way of the pointers, too"
    assert run.counters["smsp__sass_thread_inst_executed_op_dfma_pred_on.sum"] == 32


def test_a_struct_that_is_not_whole_is_refused_and_the_beginning_of_an_array_is_told(blur):
    one = compile(ARGS.replace("args[2]", "args").replace("args[blockIdx.x]", "args"))
    with pytest.raises(LaunchError, match=r"symbols\['args'\] is a struct of 32 bytes, and these members make 4: "):
        one.launch(1, 32, [], on="cpu", symbols={"args": (32,)})
    with pytest.raises(LaunchError, match=r"a struct, and a member of it is a number, an array, None or bytes, not dict"):
        one.launch(1, 32, [], on="cpu", symbols={"args": ({},)})
    with pytest.raises(LaunchError, match=r"the array args\[1\] is not contiguous"):
        one.launch(1, 32, [], on="cpu", symbols={"args": (1, np.ones(8)[::2], None)})
    for given, said in (
        (None, "`args` is all zeros: "),
        ({"args": np.array([32], np.int32)}, "`args` has 32 bytes and was given the first 4"),
    ):
        unchecked = compile(one.source.replace("mine.a != nullptr && ", "").replace("mine.size.m", "32"))
        with pytest.raises(RunError, match=rf"null pointer.*{said}") as raised:
            unchecked.launch(1, 32, [], on="cpu", symbols=given)
        assert raised.value.findings and str(raised.value) == raised.value.message
    remarks = launch(blur, symbols={"mask": MASK[:2], "rounds": 1, "pair": (0.5, 6)})[1].remarks
    assert remarks == ("`mask` has 12 bytes and was given the first 8: the rest is as it was declared.",)


COUNTED = """
__device__ int launches = 5;
__device__ int* pointer = &launches;
__constant__ int step = 1;
__global__ void count(int* seen) { if (threadIdx.x == 0) { *pointer += step; *seen = launches; } }
"""


@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_what_is_known_of_a_program_does_not_depend_on_what_its_variables_hold(engine, monkeypatch):
    """Analyses are kept by program: a new one for each launch made all of them again, half of the check of a kernel with slices."""
    programs, kernel, seen, state = [], compile(COUNTED), np.zeros(1, np.int32), None
    known = launches.Launch
    monkeypatch.setattr(launches, "Launch", lambda **given: programs.append(given["program"]) or known(**given))
    for turn, step in enumerate((1, 1, 10, 100)):
        options = {"symbols": {"step": step}} if turn > 1 else {}
        done = kernel.launch(1, 32, [seen], on="cpu", globals_before=state, trace=engine == "numpy", **options)
        assert done.engine == engine and not done.findings
        state = done.outcome.globals_after
        assert seen[0] == (6, 7, 17, 117)[turn], "begins with what the launch before left, and with its own values"
    assert len(programs) == 4 and len({id(program) for program in programs}) == 1
