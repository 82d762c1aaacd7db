"""The strategy table: its configurations are kernels, its rows are recorded, its best is the fastest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.course import rungs, strategy
from helpers.course.autotune import vet
from helpers.course.lesson import reference
from helpers.course.steps import get
from helpers.course.sweep import variant
from helpers.errors import CourseError
from helpers.run import gemm
from helpers.run.kernel import compile as compile_kernel
from helpers.toolchain.compile import compile_source

SOURCE = get(strategy.STEP).kernel_path.read_text(encoding="utf-8")
TENSOR_SOURCE = get("warp_specialized").kernel_path.read_text(encoding="utf-8")


def test_every_configuration_satisfies_the_kernel_and_is_named_after_its_tile():
    names = sorted({name for setting in strategy.CONFIGURATIONS.values() for name in setting})
    shipped = {name: int(SOURCE.split(f"{name} = ")[1].split(",")[0].split(";")[0]) for name in names}
    points = [{**shipped, **setting} for setting in strategy.CONFIGURATIONS.values()]
    for (name, setting), judged in zip(strategy.CONFIGURATIONS.items(), vet(SOURCE, points), strict=True):
        assert not judged.refused, f"{name}: {judged.refused}"
        title = ["{} × {}".format(*judged.tile)]
        title += [f"{setting['WARPS_K']} warps"] if "WARPS_K" in setting else []
        title += ["4 blocks"] if setting.get("MIN_BLOCKS") == 4 else []  # three are what tiles of its size have otherwise
        title += [f"{judged.depth} slices"] if judged.depth > 1 else []
        assert name == ", ".join(title)


@pytest.mark.parametrize(("name", "setting"), strategy.TENSOR_CONFIGURATIONS.items(), ids=strategy.TENSOR_CONFIGURATIONS)
def test_every_configuration_of_tensor_cores_is_named_after_what_it_is(name, setting):
    constants = compile_source(variant(TENSOR_SOURCE, **setting), "warp_specialized", "sm_90a").constants
    title = ["{} × {}".format(*constants["tile_shape"])]
    title += ["alone"] if setting.get("CLUSTER") == 1 else []
    title += [f"{constants['persistent'][1]} slices"] if constants["persistent"][1] > 1 else []
    assert name == ", ".join(title)


@pytest.mark.parametrize("dtype", strategy.FAMILIES)
def test_every_configuration_was_recorded_on_every_shape(dtype):
    found = strategy.recorded(dtype=dtype)
    assert list(found.rows) == list(strategy.shapes(dtype))
    assert list(strategy.judged(dtype=dtype).recorded) == strategy.held_out(dtype)
    assert all(set(rows) == set(strategy.FAMILIES[dtype].configurations) for rows in found.rows.values())
    assert list(strategy.shapes()) == list(strategy.SHAPES) and strategy.held_out() == list(strategy.HELD_OUT)


def test_no_configuration_of_tensor_cores_is_without_use():
    """Each is the fastest somewhere, or within 2 % of it."""
    found, judged = strategy.recorded(dtype="bfloat16"), strategy.judged(dtype="bfloat16")
    used = {
        name for rows in [*found.rows.values(), *judged.recorded.values()] for name in rows
        if rows[name]["milliseconds"] < 1.02 * min(row["milliseconds"] for row in rows.values())
    }  # fmt: skip
    assert used == set(strategy.TENSOR_CONFIGURATIONS)


def test_the_best_of_a_shape_is_the_fastest_and_stands_out():
    found = strategy.recorded()
    for shape, rows in found.rows.items():
        assert rows[found.best(shape)]["milliseconds"] == min(row["milliseconds"] for row in rows.values())
    header, cells = found.table().header, found.table().rows
    assert [len(row) for row in cells] == [len(header)] * len(strategy.SHAPES)
    page = found._repr_html_()
    assert page.count("<b>") == len(strategy.SHAPES) and page.count("background:rgba") > 50
    assert "background:rgba(0,158,115,0.60)'><b>" in page  # as fast as cuBLAS
    assert "recorded, NVIDIA H200" in str(found) and "32 × 64, 8 warps, 16 slices" in str(found)
    assert ">32&nbsp;×<br>64<br><small>8 warps, 16 slices</small></th>" in page, "no title is wider than the numbers below it"


def test_a_device_without_a_table_is_refused():
    for asked in (lambda: strategy.recorded("Voodoo 2"), lambda: strategy.judged("Voodoo 2"), lambda: strategy.best(64, device="Voodoo 2")):
        with pytest.raises(CourseError, match="not recorded on Voodoo"):
            asked()


def test_with_the_best_of_each_row_the_course_is_ahead_of_cublas():
    found = strategy.recorded()
    single = [found.ratio(shape, found.best(shape)) for shape, problem in strategy.SHAPES.items() if problem.batch == 1]
    assert len(single) == 15 and min(single) >= 1.0 and sum(single) / len(single) > 1.15


def test_on_tensor_cores_the_course_is_ahead_of_cublas_on_average():
    found = strategy.recorded(dtype="bfloat16")
    ratios = [found.ratio(shape, found.best(shape)) for shape in found.rows]
    assert len(ratios) == 15 and sum(ratios) / len(ratios) > 1.20
    assert sum(ratio > 0.95 for ratio in ratios) >= 13
    assert "64 × 64, alone, 32 slices" in str(found) and "<b>" in found._repr_html_()


def test_best_takes_what_was_recorded_where_there_is_a_record():
    found = strategy.recorded()
    for shape, problem in strategy.SHAPES.items():
        choice = strategy.best(problem.m, problem.n, problem.k, problem.batch)
        assert choice.recorded and choice.configuration == found.best(shape)
        assert choice.milliseconds[choice.configuration] == found.rows[shape][choice.configuration]["milliseconds"]
    assert strategy.best(4096).problem == strategy.SHAPES["large"], "one number is a cube"
    assert strategy.best(4096, device="H200 SXM").milliseconds == strategy.best(4096).milliseconds, "its name in gpus.toml will do"


def test_best_estimates_what_was_not_recorded_from_the_table_alone(monkeypatch):
    problem = strategy.HELD_OUT[0]
    timed = strategy._timed
    shapes = set(strategy.SHAPES.values())
    monkeypatch.setattr(strategy, "_timed", lambda *asked: {one: rows for one, rows in timed(*asked).items() if one in shapes})
    choice = strategy.best(problem.m, problem.n, problem.k)
    assert not choice.recorded and set(choice.milliseconds) == set(strategy.CONFIGURATIONS)
    assert "estimated from the strategy table of NVIDIA H200" in str(choice) and choice.configuration in str(choice)
    assert "constants that differ" in str(choice) and "BM 256" not in str(choice), "the shipped kernel's are not among them"


@pytest.mark.slow
def test_best_gives_a_kernel_with_its_constants_that_computes_the_product():
    choice = strategy.best(100, 100, 1000)
    assert choice.source == variant(SOURCE, **choice.constants)
    made = choice.kernel()
    problems = [gemm.Problem(100, 100, 1000), gemm.Problem(33, 66, 70, alpha=0.5, beta=2.0)]
    report = gemm.check(made, problems, on="cpu", patience=60.0)  # 128 blocks share the tiles of the first
    assert report.passed, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", strategy.TENSOR_CONFIGURATIONS)
def test_every_configuration_of_tensor_cores_computes_the_product(name):
    kernel = compile_kernel(strategy.sources(TENSOR_SOURCE, [name], "bfloat16")[name], entry="warp_specialized", arch="sm_90a")
    columns = 140 if gemm.geometry(kernel).parts <= 16 else 60  # 64 blocks that wait for each other are enough
    for options in ({}, {"alpha": 0.5, "beta": -2.0, "pad_a": 8, "pad_c": 3}):
        problem = gemm.problem_for(kernel, 100, columns, 600, **options)
        report = gemm.check(kernel, [problem, replace(problem, k=0)], on="cpu", patience=60.0)
        assert report.passed, str(report)


@pytest.mark.slow
def test_slices_are_counted_by_the_blocks_that_share_the_tiles():
    small = strategy.TENSOR_CONFIGURATIONS["64 × 64, alone"]
    counted = []
    for slices in (1, 4):
        kernel = compile_kernel(variant(TENSOR_SOURCE, **small, SLICES=slices), entry="warp_specialized", arch="sm_90a")
        counted.append(gemm.count(kernel, gemm.problem_for(kernel, 512, 512, 4096)))
    names = ("smsp__inst_executed_pipe_tensor_op_gmma.sum", "sm__sass_inst_executed_op_tma_ld.sum")
    assert [counted[0].counters[name] for name in names] == [counted[1].counters[name] for name in names] == [65536, 8192]
    assert (
        "2 of 64 tiles" in counted[0].problem["counted"]
        and "without what the last block of a tile adds up" in counted[1].problem["counted"]
    )


def test_best_knows_the_tensor_cores():
    choice = strategy.best(1000, 3000, 500, dtype="bfloat16")
    assert choice.recorded and choice.configuration == strategy.recorded(dtype="bfloat16").best("oblong")
    assert choice.kernel().name == "warp_specialized" and "128 × 192" in str(choice)
    assert not strategy.best(777, 888, 999, dtype="bfloat16").recorded
    assert strategy.best(512, dtype="bfloat16").constants["BM"] == 64, "a small product wants more tiles"
    with pytest.raises(CourseError, match="one product at a time: leave batch out"):
        strategy.best(64, batch=3, dtype="bfloat16")
    with pytest.raises(CourseError, match="dtype='int8': configurations were tried for 'float32' and 'bfloat16'"):
        strategy.best(64, dtype="int8")


@pytest.mark.slow
def test_what_is_chosen_passes_its_check():
    choice = strategy.best(16, 4096, 4096)
    assert choice.constants["SLICES"] > 1, "whose counters are not those of the shipped constants"
    report = choice.kernel().check(on="cpu")
    assert report.passed and not report.expectations, str(report)
    assert "Who waits for whom behind a fence with atomic operations" in str(report), "slices tell each other so that they are done"
    assert "Who waits" not in str(reference("coalesced").check(on="cpu"))


def test_a_product_smaller_than_any_that_was_timed_is_told_so():
    assert "Smaller than anything in the table" in str(strategy.best(1, 1, 1).table())
    assert all("Smaller than" not in str(strategy.best(*shape).table()) for shape in ((256, 256, 256), (1000, 1000, 1000)))


def test_the_fastest_of_all_configurations_are_said_to_be_some():
    chosen = strategy.best(1500, 700, 3000)
    assert f"The 5 fastest of {len(chosen.milliseconds)} configurations" in str(chosen) and len(chosen.milliseconds) > 5


def test_best_of_nothing_is_refused():
    with pytest.raises(CourseError, match="nothing to compute"):
        strategy.best(64, 0, 64)


@pytest.mark.parametrize(("ask", "sentence"), [
    (lambda: strategy.best(64, dtype=["x"]), r"dtype=\['x'\]: configurations were tried for 'float32' and 'bfloat16'"),
    (lambda: strategy.best(-1), "m=-1: give a whole number, at least 1"),
    (lambda: strategy.best(8, 8, 2.5), r"k=2\.5: give a whole number, at least 1"),
    (lambda: strategy.best(None), "m=None: give a whole number, at least 1"),
    (lambda: strategy.held_out([]), r"dtype=\[\]: configurations were tried for"),
    (lambda: strategy.recorded().best("x"), "There is no shape 'x'; there are: 'small', 'small, 512', "),
    (lambda: strategy.recorded().best([]), r"There is no shape \[\]; there are: "),
    (lambda: strategy.recorded().ratio("x", "y"), "There is no shape 'x'; there are: "),
    (lambda: strategy.recorded().ratio("small", "y"), "There is no configuration 'y'; there are: "),
    (lambda: strategy.sources(SOURCE, ["nosuch"]), "There is no configuration 'nosuch'; there are: '256 × 128', "),
    (lambda: strategy.sources(SOURCE, [["x"]]), r"There is no configuration \['x'\]; there are: "),
    (lambda: strategy.sources(SOURCE, 3), r"names=3: give a list of configurations, such as \['256 × 128'\], or None for all"),
    (lambda: strategy.sources(SOURCE, "256 × 128"), "names='256 × 128': give a list of configurations"),
    (lambda: strategy.sources(None), "a source is text, and this is NoneType"),
])  # fmt: skip
def test_what_is_not_known_is_refused_with_a_sentence(ask, sentence):
    with pytest.raises(CourseError, match=sentence):
        ask()


@pytest.mark.parametrize("dtype", strategy.FAMILIES)
def test_the_rule_is_nearly_as_good_as_trying_everything_on_shapes_that_it_was_not_fitted_to(dtype):
    judged = strategy.judged(dtype=dtype)
    assert not set(strategy.held_out(dtype)) & set(strategy.shapes(dtype).values())
    losses = [judged.loss(problem) for problem in judged.recorded]
    assert sum(losses) / len(losses) < 0.03 and max(losses) < 0.15
    assert sum(map(judged.right, judged.recorded)) >= 0.7 * len(losses)
    assert all(judged.loss(problem) < 0.02 for problem in judged.recorded if judged.right(problem)), "what is noise is small"
    assert "0 % slower" not in str(judged).replace("10 % slower", "")
    worst = max(judged.recorded, key=judged.loss)
    assert f"{100 * judged.loss(worst):.0f} % slower" in str(judged)


def test_the_room_for_slices_is_the_kernels():
    for dtype in strategy.FAMILIES:
        assert f"1 << {strategy.ROOM.bit_length() - 1} : 1;" in strategy._source(dtype)
    assert strategy.ROOM == 1 << strategy.ROOM.bit_length() - 1


def test_variants_stay_out_of_the_ladder():
    assert any("configuration" in row for row in rungs.recorded(variants=True))
    assert not any("configuration" in row or "batch" in row for row in rungs.recorded())


SMALL = {"BM": 16, "BN": 64, "BK": 16, "WM": 16, "WN": 32, "TM": 4, "TN": 4}


@pytest.mark.parametrize(("together", "slices"), [(2, 1), (4, 1), (4, 3)])
def test_warps_that_share_a_tile_compute_the_same_as_one_alone(together, slices):
    taller = {"BM": 32, "WM": 32, "TM": 8} if together == 4 else {}  # a tile of A must be copied in whole sweeps
    constants = SMALL | taller | {"BK": 32, "WARPS_K": together, "SLICES": slices, "SPREAD": slices % 2, "MIN_BLOCKS": 2}
    kernel = compile_kernel(variant(SOURCE, **constants), entry=strategy.STEP)
    assert gemm.geometry(kernel).block[0] == 64 * together
    problems = [
        gemm.Problem(17, 70, 100, alpha=0.5, beta=2.0, pad_a=1, pad_c=3, batch=3),
        gemm.Problem(16, 67, 20, batch=2),
        gemm.Problem(33, 65, 0, beta=1.0),
        gemm.Problem(40, 64, 200),
    ]
    report = gemm.check(kernel, problems, on="cpu")
    assert report.passed, str(report)


def test_warps_cannot_share_what_they_do_not_divide():
    judged = vet(SOURCE, [{**SMALL, "WARPS_K": 3}])[0]
    assert "WARPS_K must divide BK and TM" in judged.refused


@pytest.mark.parametrize(("step", "slices"), [("schedule", 1), ("autotune", 1), ("autotune", 3), ("fused_epilogue", 1)])
def test_slices_and_batches_compute_the_same_as_one_block_alone(step, slices):
    source = get(step).kernel_path.read_text(encoding="utf-8")
    constants = SMALL | ({"SLICES": slices} if slices > 1 else {})
    kernel = compile_kernel(variant(source, **constants), entry=get(step).entry)
    assert gemm.geometry(kernel).depth == slices
    problems = [
        gemm.Problem(17, 70, 100, alpha=0.5, beta=2.0, pad_a=1, pad_c=3, batch=3),
        gemm.Problem(16, 64, 20, batch=2),  # the last slices have nothing to add up
        gemm.Problem(33, 65, 0, beta=1.0),
    ]
    report = gemm.check(kernel, problems, on="cpu")
    assert report.passed, str(report)
