"""Recording merges and loses nothing; the README shows what is recorded; rows are complete and plausible.

Tests of: helpers.course.recorded_states
"""

import json
import types

import pytest

from helpers.course import record, recorded_states, rungs, steps, strategy, validate
from helpers.errors import CourseError
from helpers.model import hardware
from helpers.run import gpu
from helpers.sim.code import elf
from helpers.toolchain.compile import compile_source


def row(step=1, size=4096, **more):
    values = dict.fromkeys(record.REQUIRED)
    values |= {
        "step": step, "slug": steps.get(step).slug, "dtype": "float32", "m": size, "n": size, "k": size,
        "milliseconds": 10.0, "tflops": 13.7, "cublas_milliseconds": 2.7, "cublas_tflops": 50.9, "cublas_ratio": 0.27,
        "noisy": "", "date": "2026-11-21", "device": "NVIDIA H200", "driver": "580", "cuda": "13.0",
    }  # fmt: skip
    return {**values, **more}


def test_merging_replaces_what_was_measured_again_and_keeps_the_rest():
    old = [row(1), row(2), row(1, 512), row(1, dtype="float16")]
    new = [row(1, milliseconds=5.0), row(3)]
    merged = record.merge(old, new)
    assert len(merged) == 5
    assert [r["milliseconds"] for r in merged if r["step"] == 1 and r["m"] == 4096 and r["dtype"] == "float32"] == [5.0]
    assert all(r in merged for r in old[1:])


def test_files_are_merged_and_readable(tmp_path):
    path = tmp_path / "new" / "nvidia-h200.json"
    record.write(path, [row(1), row(2)])
    record.write(path, [row(2, milliseconds=1.0), row(3)])
    assert [r["step"] for r in rungs.recorded(path.parent)] == [1, 2, 3]
    assert len(path.read_text().splitlines()) == 5, "one line per row"
    path.write_text("[{")
    with pytest.raises(CourseError, match="damaged"):
        record.write(path, [row(1)])
    assert path.read_text() == "[{", "a damaged file is not overwritten"


def test_slugs():
    assert rungs.slug("NVIDIA H200") == "nvidia-h200"
    assert rungs.slug("NVIDIA GeForce RTX 4090 / mobile") == "nvidia-geforce-rtx-4090-mobile"


def test_comments_and_layout_do_not_make_another_kernel():
    one = "int a = 1; // one\n/* two\nlines */ int b;\n"
    assert rungs.code_hash(one) == rungs.code_hash("int a = 1;\nint b;")
    assert rungs.code_hash(one) != rungs.code_hash("int a = 2;\nint b;")


def test_sizes_and_steps_are_parsed():
    assert record.parse_sizes("256,1000x3000x500") == [(256, 256, 256), (1000, 3000, 500)]
    assert record.parse_sizes("64x64x64x1024") == [(64, 64, 64, 1024)]
    for bad in ("", "12x3", "0", "a", "x", "-4", "4096,"):
        with pytest.raises(ValueError, match="is neither a size such as 4096"):
            record.parse_sizes(bad)
    assert [step.number for step in record.parse_steps("0-3")] == [1, 2, 3], "step 0 has no kernel"
    assert [step.slug for step in record.parse_steps("naive,3")] == ["naive", "shared_tile"]
    with pytest.raises(KeyError):
        record.parse_steps("42")


def test_without_a_gpu_the_command_says_so(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "why_not", lambda: "This machine has no NVIDIA driver.")
    assert record.main(["--steps", "1"]) == 1
    assert "no NVIDIA driver" in capsys.readouterr().err
    assert record.main(["--steps", "99"]) == 1
    assert "no step 99" in capsys.readouterr().err


def test_recording_saves_each_row_skips_the_too_slow_and_survives_a_failure(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(gpu, "device", lambda: types.SimpleNamespace(name="NVIDIA H200", driver="580", cuda="13.0"))
    monkeypatch.setattr(gpu, "available", lambda: True)

    def measured(step, problem, samples, seconds):
        if step.number == 2:
            raise CourseError("coalesced computes wrong results.")
        return row(step.number, problem.m, tflops=0.5, samples=samples, clock_mhz=1980.0, method="one launch")

    monkeypatch.setattr(record, "measure", measured)
    sizes = [(512, 512, 512), (8192, 8192, 8192)]
    rows = record.record([steps.get(1), steps.get(2)], sizes, tmp_path, say=said.append)
    assert [(r["step"], r["m"]) for r in rows] == [(1, 512)]
    assert any("skipped" in line for line in said) and sum("wrong results" in line for line in said) == 2
    assert json.loads((tmp_path / "nvidia-h200.json").read_text()) == rows


# ---------------------------------------------------------------------------------------------------- the README


def test_the_section_shows_each_step_with_its_ratio():
    text = record.readme_section([row(1), row(2, tflops=6.25, noisy="samples spread by 9%"), row(2, 512)])
    assert "| 01_naive |  | 13.7 (0.27) |" in text
    assert "| 02_coalesced | 13.7 (0.27) | 6.25 (0.27) noisy |" in text and text.count("*Noisy*: ") == 1
    assert "*Noisy*" not in record.readme_section([row(1), row(2, 512)])
    assert "| cuBLAS | 50.9 | 50.9 |" in text
    assert "NVIDIA H200" in text and "2026-11-21" in text
    assert "No runs" in record.readme_section([])


def test_each_pair_of_element_types_has_its_own_rows_and_table():
    rows = [row(1), row(1, dtype="float16"), row(1, dtype="float16", out_dtype="float32", tflops=6.25)]
    assert len(record.merge(rows, [row(1, dtype="float16", out_dtype="float16", tflops=1.0)])) == 3
    text = record.readme_section(rows)
    assert text.count("![Ladder") == 1
    for pair in ("FP32", "FP16", "FP16 to FP32"):
        assert f"in {pair} (recorded" in text


def test_constants_chosen_by_size_have_a_line_that_names_them():
    rows = [row(1), row(1, 512), row(2)]
    tried = [
        row(1, configuration="wide", tflops=20.0, milliseconds=0.1), row(1, configuration="narrow", tflops=10.0, milliseconds=0.2),
        row(1, 512, configuration="narrow", tflops=30.0, milliseconds=0.01), row(1, 512, batch=9, configuration="wide", milliseconds=0.001),
    ]  # fmt: skip
    text = record.readme_section([*rows, *tried])
    assert "| 01_naive, constants by size | 30 (0.27) | 20 (0.27) |" in text
    assert "512³ narrow; 4096³ wide." in text and "02_coalesced, constants" not in text
    assert "| 01_naive | 13.7 (0.27) | 13.7 (0.27) |" in text and "by size" not in record.readme_section(rows)


def test_the_markers_hold_the_section():
    text = f"# Title\n{record.START}\nold\n{record.END}\nrest\n"
    assert record.with_section(text, "new\n") == f"# Title\n{record.START}\nnew\n{record.END}\nrest\n"
    with pytest.raises(CourseError):
        record.with_section("# Title\n", "new\n")


def test_the_figure_draws_every_step():
    drawing = record.figure([row(1), row(2, tflops=6.25), row(3, 512)])
    for text in ("01 naive", "02 coalesced", "cuBLAS", "limit of the FP32 lanes: 66.9", "6.25", "<title>"):
        assert text in drawing
    assert "03 shared" not in drawing, "another size"
    assert record.figure([]) == ""


def test_the_readme_is_in_step_with_the_recorded_runs():
    text = record.README.read_text(encoding="utf-8")
    rows = rungs.recorded()
    section = record.readme_section(rungs.recorded(variants=True))
    assert record.with_section(text, section) == text, "run: course record --readme"
    assert "| 12_autotune, constants by size |" in section
    assert rows and record.FIGURE.read_text(encoding="utf-8") == record.figure(rows), "run: course record --readme"


# ------------------------------------------------------------------------------------------- what is recorded here


def test_recorded_rows_are_complete_and_plausible():
    rows = rungs.recorded(variants=True)
    assert rows, "helpers/data has recorded runs"
    for got in rows:
        assert set(record.REQUIRED) <= set(got), got
        flops = 2 * got["m"] * got["n"] * got["k"] * got.get("batch", 1)
        assert got["tflops"] == pytest.approx(flops / got["milliseconds"] / 1e9, rel=1e-4)
        if got["cublas_ratio"] is not None:
            assert got["cublas_ratio"] == pytest.approx(got["cublas_milliseconds"] / got["milliseconds"], rel=1e-4)
        if got["dtype"] == "float32":
            gpu = hardware.gpu(got["device"])
            peak = gpu.peak_fp32_tflops
            pieces = "pieces[]" in steps.get(got["step"]).kernel_path.read_text(encoding="utf-8")
            assert got["tflops"] < (gpu.tensor_tflops["float16"] / 3 if pieces else peak) and (got["cublas_tflops"] or 0) < peak, (
                "faster than the hardware: a broken timing"
            )


def test_rows_under_another_name_have_the_same_machine_code():
    """A row that says `recorded_from` was measured with another source; where that one is shipped, both give the same code."""
    shipped = {rungs.code_hash(text): text for step in steps.STEPS if step.entry for text in [step.kernel_path.read_text(encoding="utf-8")]}
    rows = [*rungs.recorded(variants=True), *rungs.recorded(validate.ABROAD), *recorded_states.recorded()]
    pairs = {(row["kernel_hash"], row["recorded_from"]) for row in rows if "recorded_from" in row}
    assert any(other in shipped for _, other in pairs)
    for mine, other in pairs:
        if other in shipped:
            one, two = (compile_source(shipped[name], arch="sm_90") for name in (mine, other))
            assert one.registers == two.registers
            code = [elf.sections(made.cubin)[f".text.{made.symbol}"].data for made in (one, two)]
            assert code[0] == code[1], "the rows must be recorded anew: run `course record` on a GPU"


@pytest.mark.slow
def test_recorded_kernels_are_the_shipped_ones():
    for got in rungs.recorded(variants=True):
        source = steps.get(got["step"]).kernel_path.read_text(encoding="utf-8")
        if name := got.get("configuration"):
            source = strategy.sources(source, [name], got["dtype"])[name]
        assert rungs.code_hash(source) == got["kernel_hash"], (
            f"step {got['step']} changed after it was recorded at {got['m']}: run `course record` on a GPU"
        )
