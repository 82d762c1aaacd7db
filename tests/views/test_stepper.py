"""The stepper: registers, addresses and shared memory of an executed kernel, compared with what NumPy says they are."""

import numpy as np
import pytest

import helpers
from helpers.course.steps import get
from helpers.run import gemm
from helpers.sim import TraceFilter
from helpers.views import stepper
from helpers.views.stepper import copied, page, shared_memory, show, state

SOURCE = """
extern "C" __global__ void squares(float* A, int n) {
    __shared__ float s[32];
    int i = threadIdx.x;
    float x = A[i];
    s[i] = x * x;
    __syncthreads();
    if (i < n) A[i] = s[31 - i] + 1;
}
"""


@pytest.fixture(scope="module")
def run():
    array = np.arange(32, dtype=np.float32)
    return helpers.compile("\n" + SOURCE).launch(1, 32, [array, 5], on="cpu", trace=TraceFilter(registers=True))


def find(run, text, first=0):
    """The first step from `first` on whose instruction contains `text`."""
    for step in range(first, state(run).steps):
        if text in run.trace.code[state(run, step=step).code].text:
            return step
    raise AssertionError(f"no {text} is executed")


def test_registers_hold_what_the_source_computes(run):
    loaded = state(run, step=find(run, "ld.global"))
    assert [float(show(loaded.written[0], lane, run)) for lane in range(32)] == list(range(32))
    product = state(run, step=find(run, "mul.f32"))
    assert [float(show(product.written[0], lane, run)) for lane in range(32)] == [lane * lane for lane in range(32)]
    assert {value.name for value in product.operands} > {value.name for value in product.written}


def test_shared_memory_changes_at_the_store_and_not_before(run):
    at = find(run, "st.shared")
    before, after = state(run, step=at - 1), state(run, step=at)
    assert not shared_memory(run.trace, 0, before.order, 32)[1].any()
    bits, written = shared_memory(run.trace, 0, after.order, 32)
    assert written.all()
    np.testing.assert_array_equal(bits.astype(np.uint32).view(np.float32), np.arange(32, dtype=np.float32) ** 2)


def test_lanes_that_left_are_not_active(run):
    stored = state(run, step=find(run, "st.global"))
    assert stored.active.tolist() == [lane < 5 for lane in range(32)]
    addresses = run.trace.addresses[stored.access]
    assert (addresses >= 0).tolist() == stored.active.tolist()


def test_the_page_shows_line_instruction_values_and_elements(run):
    shown = page(run, step=find(run, "ld.shared"))._repr_html_()
    assert "A[i] = s[31 - i] + 1" in shown and "ld.shared.f32" in shown
    assert "s[31]" in shown and "s[27]" in shown  # elements touched
    assert "961" in shown and "676" not in shown  # 31 squared, loaded by lane 0
    assert "lanes 0–7" in shown and "5 lanes active" in shown and "<img alt=" in shown


def test_the_picture_counts_written_words(run):
    at = find(run, "st.shared")
    assert "0 of 32 words" in stepper(run, step=at - 1).alt
    assert "32 of 32 words of shared memory are written; this step touches 32" in stepper(run, step=at).alt
    key = stepper(run, step=at).get_legend().get_texts()
    assert [text.get_text() for text in key] == ["written (32 of 32 words)", "read now", "written now"]


def test_stepping_beyond_the_end_stays_at_the_end(run):
    last = state(run, step=10**9)
    assert last.step == last.steps - 1 and state(run, block=7, warp=7, step=-3).step == 0


def test_tiles_of_the_course_s_kernel_arrive_whole():
    kernel = helpers.compile("\n" + get("shared_tile").kernel_path.read_text(encoding="utf-8"))
    run = gemm.run(kernel, gemm.Problem(32, 64, 64), on="cpu", trace=TraceFilter(blocks={1}, registers=True))
    barrier = find(run, "bar.sync")
    bits, written = shared_memory(run.trace, 1, state(run, block=1, step=barrier).order, 2048)
    tiles = bits.astype(np.uint32).view(np.float32).reshape(2, 32, 32)
    assert written.all()
    np.testing.assert_array_equal(tiles[0], run.problem["A"][:32, :32])
    np.testing.assert_array_equal(tiles[1], run.problem["B"][:32, 32:64])


def test_a_run_without_registers_says_how_to_record_them(said):
    array = np.zeros(32, np.float32)
    run = helpers.compile("\n" + SOURCE).launch(1, 32, [array, 5], on="cpu", trace=True)
    assert "registers=True" in said(stepper(run))


def test_math_is_recorded_where_it_happens(run):
    array = np.zeros(32, np.float32)
    source = '\nextern "C" __global__ void k(float* A) { float x = A[0]; A[1] = fmaf(x, x, x); A[2] = fmaf(x, x, 2.f); }'
    traced = helpers.compile(source).launch(1, 1, [array], on="cpu", trace=TraceFilter(math=True)).trace
    events = sorted([(int(o), "FFMA") for o in traced.math["order"]] + [
        (int(row["order"]), traced.sites[row["site"]].op) for row in traced.accesses
    ])  # fmt: skip
    assert [kind for _, kind in events] in (["ld", "FFMA", "st", "FFMA", "st"], ["ld", "FFMA", "FFMA", "st", "st"])


COPY = """
extern "C" __global__ void copies(const float* A, float* C) {
    __shared__ float s[64];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((unsigned)__cvta_generic_to_shared(&s[threadIdx.x])), "l"(A + threadIdx.x));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((unsigned)__cvta_generic_to_shared(&s[32 + threadIdx.x])), "l"(A + threadIdx.x));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;");
    __syncwarp();
    C[threadIdx.x] = s[31 - threadIdx.x];
}"""


def test_copies_are_on_their_way_until_they_are_waited_for():
    arrays = [np.arange(32, dtype=np.float32), np.zeros(32, np.float32)]
    run = helpers.compile("\n" + COPY).launch(1, 32, arrays, on="cpu", trace=TraceFilter(registers=True))

    def counts(text, first=0):
        step = find(run, text, first)
        landed, coming = copied(run.trace, 0, state(run, step=step).order, 64)
        return step, (int(landed.sum()), int(coming.sum()))

    step, first = counts("cp.async.ca")
    assert first == (0, 32) and "32 more are on their way" in stepper(run, step=step).alt
    assert counts("cp.async.ca", step + 1)[1] == (0, 64)
    assert counts("wait_group")[1] == (32, 32)
    assert "32 of 64 words of shared memory are written" in stepper(run, step=find(run, "ld.shared")).alt
