"""The recorded times of steps with other constants: of the kernels as they are, and under names that say the constants."""

from __future__ import annotations

import json

from helpers.course import recorded_variants, rungs, steps
from helpers.course.comparing import edited
from helpers.course.recorded_variants import file_name, recorded, with_constants

FILE = rungs.DATA / file_name("NVIDIA H200")


def test_everything_on_record_is_of_the_kernels_as_they_are():
    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    found = list(recorded())
    assert len(found) == len(rows) > 50
    for item, row in zip(found, rows, strict=True):
        assert item.source == edited(item.step.kernel_path.read_text(encoding="utf-8"), row["constants"], item.step.name)
        assert item.milliseconds == row["milliseconds"] > 0 and item.device == "NVIDIA H200"
        assert row["constants"] in recorded_variants.VARIANTS[row["slug"]] and row["size"] in recorded_variants.SIZES


def test_a_time_of_another_source_is_left_out(tmp_path):
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    kept["rows"][0]["kernel_hash"] = "of another source"
    (tmp_path / FILE.name).write_text(json.dumps(kept), encoding="utf-8")
    assert [item.milliseconds for item in recorded(tmp_path)] == [row["milliseconds"] for row in kept["rows"][1:]]


def test_a_name_says_the_constants():
    assert with_constants(steps.get("vectorized"), {"BM": 64, "BK": 32}) == "07_vectorized with BM 64, BK 32"
    assert with_constants(steps.get("tma_wgmma"), {"wait<1>": "wait<0>"}) == "16_tma_wgmma with wait<0>"
