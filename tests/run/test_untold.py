"""helpers.run.untold: what a cell is told of a launch whose findings it does not show."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from helpers import arguments
from helpers.run import untold

RACE = """%%cuda racing
__global__ void racing(int* out) {
    out[0] = threadIdx.x;
}
"""
STENCIL = """%%cuda weighted
__constant__ float w[3];
__global__ void weighted(float* out) {
    out[threadIdx.x] = w[threadIdx.x];
}
"""
LAUNCH = "racing.launch(grid=1, block=64, args=[np.zeros(1, np.int32)], on='cpu')"
WEIGHTED = "weighted.launch(grid=1, block=3, args=[np.zeros(3, np.float32)], on='cpu'{})"


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "helpers")
    for cell in ("import numpy as np\nfrom helpers import gemm, variants", RACE, STENCIL):
        assert shell.run_cell(cell).success
    yield shell
    arguments.LISTENERS.remove(untold.returned)
    InteractiveShell.clear_instance()


def told(shell, capsys, cell: str) -> list[str]:
    capsys.readouterr()
    shell.run_cell(cell, store_history=True)
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    "cell",
    [f"run = {LAUNCH}\nprint(run.arguments)", f"{LAUNCH};", f"for _ in range(3): {LAUNCH}", f"{LAUNCH}\nnp.zeros(128).reshape(4, 64)"],
)
def test_a_launch_that_nobody_looks_at_is_told_once_with_its_line(shell, capsys, cell):
    lines = [line for line in told(shell, capsys, cell) if line.startswith("racing: ")]
    assert len(lines) == 1
    assert "1 finding, which the cell does not show" in lines[0] and "line 3, “out[0] = threadIdx.x;”" in lines[0]
    assert ("(3 launches.)" in lines[0]) == ("range(3)" in cell)


@pytest.mark.parametrize("cell", [LAUNCH, f"run = {LAUNCH}\nprint(*run.findings)", f"print({LAUNCH})"])
def test_what_the_cell_shows_is_not_told_again(shell, capsys, cell):
    assert told(shell, capsys, cell) == []


@pytest.mark.parametrize("call", ["gemm(40)", "gemm(40, trace=True)"])
def test_a_product_that_nobody_looks_at_is_told_and_a_check_tells_by_itself(shell, capsys, call):
    from helpers import reference

    source = reference("shared_tile").source.replace("__syncthreads();", "", 1)
    assert told(shell, capsys, f"%%cuda shared_tile\n{source}") == []
    for cell in (f"run = shared_tile.{call}", f"runs = variants(shared_tile, {{'as it is': {{}}}}).{call}"):
        assert "race" in told(shell, capsys, cell)[0]
    assert told(shell, capsys, "report = gemm.check(shared_tile, [gemm.Problem(20, 20, 20)])") == []


def test_a_variable_that_nobody_has_filled_is_told_unless_the_run_is_shown(shell, capsys):
    (line,) = told(shell, capsys, f"run = {WEIGHTED.format('')}\nprint(*run.findings or ['none'])")
    assert line.startswith("weighted: `w` is all zeros") and "symbols={'w': array}" in line
    assert told(shell, capsys, WEIGHTED.format("")) == []
    assert told(shell, capsys, f"run = {WEIGHTED.format(', symbols={chr(34) + chr(119) + chr(34): np.ones(3, np.float32)}')}") == []


def test_outside_of_cells_nothing_is_noted(shell):
    untold.returned(shell.user_ns["run"])
    assert untold._noted is None
