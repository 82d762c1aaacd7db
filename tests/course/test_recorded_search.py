"""The recorded map of a search: what it holds, that it belongs to the kernel, and that a recording gives back what was found."""

import json
import types
from dataclasses import replace

import pytest

from helpers.course import recorded_search
from helpers.course.autotune import Measured, Search
from helpers.errors import CourseError
from helpers.run import gpu
from tests.course.tiny_kernel import SOURCE


def test_the_recorded_map_is_the_whole_space_of_this_kernel():
    found = recorded_search.recorded()
    assert len(found.candidates) == 486 and len({tuple(item.constants.values()) for item in found.candidates}) == 486
    assert all(bool(item.rule) != bool(item.measured) for item in found.candidates), "refused or timed, nothing waits"
    shipped = next(item for item in found.candidates if item.constants == {"BM": 256, "BN": 128, "TM": 16, "TN": 8, "WM": 64, "WN": 64})
    assert shipped in found.ranked[:4]
    times = [item.measured.milliseconds for item in found.ranked]
    assert times[3] < 1.005 * times[0] < times[4] / 1.01, "the lesson says that four are as good as one another"
    assert times[-1] == pytest.approx(1.5 * times[0], rel=0.05), "the lesson says that the slowest has two thirds of the speed"
    assert "NVIDIA H200" in str(found) and "2026" in str(found)


def test_ten_tries_find_what_a_full_search_finds():
    found = recorded_search.recorded()
    assert found.loss(10, "score") < 0.02 and found.loss(10, "bound") < 0.02
    assert found.loss(3, "model") < 0.002, "the model's first three have one of the four fastest"
    assert found.loss(len(found.candidates)) == 0 and found.loss(1, "bound") > 0
    with pytest.raises(CourseError, match="at least 1"):
        found.loss(0)
    with pytest.raises(CourseError, match="Nothing of this search was timed"):
        found.at(1024).loss(3)


def test_among_equals_the_loss_is_the_mean_over_their_orders():
    candidates = [types.SimpleNamespace(measured=types.SimpleNamespace(milliseconds=ms), bound=bound) for ms, bound in
                  ((1.3, 0.9), (1.2, 0.8), (1.0, 0.8), (1.6, 0.8), (1.1, 0.7))]  # fmt: skip
    found = Search(None, "", tuple(candidates))
    # After the first come one or two of the three equals: 1.2, 1.0 or 1.3; then 1.0 in two pairs of three.
    assert [found.loss(tries, "bound") for tries in (1, 2, 3, 4)] == pytest.approx([0.3, 0.5 / 3, 0.2 / 3, 0])


def test_a_recording_gives_back_what_was_found(tmp_path, monkeypatch):
    """On a GPU that is only pretended, with times that are made up."""
    step = types.SimpleNamespace(slug="autotune", name="12_autotune", kernel_source=lambda: SOURCE)
    device = types.SimpleNamespace(name="NVIDIA Pretended", arch="sm_90", sms=132, driver="1", cuda="13.0")
    monkeypatch.setattr(recorded_search.steps, "get", lambda slug: step)
    monkeypatch.setattr(gpu, "available", lambda: True)
    monkeypatch.setattr(gpu, "device", lambda: device)
    monkeypatch.setattr(
        "helpers.course.autotune._timed",
        lambda kernels, problem: {i: {"measured": vars(Measured(1.0 + i, 0.5, device.name, ""))} for i in kernels},
    )
    said = []
    whole = recorded_search.search
    monkeypatch.setattr(
        recorded_search,
        "search",
        lambda *args, trials, **more: replace(whole(*args, trials=0 if trials == 0 else 1, **more), stopped="Interrupted."),
    )
    with pytest.raises(CourseError, match=r"Interrupted. Nothing is recorded yet; .*\.journal"):
        recorded_search.record(tmp_path, said.append, {"TM": (2, 3), "TN": (2, 4)}, 256)
    monkeypatch.setattr(recorded_search, "search", whole)
    made = recorded_search.record(tmp_path, said.append, {"TM": (2, 3), "TN": (2, 4)}, 256)
    kept = recorded_search.recorded("NVIDIA Pretended", tmp_path)
    assert [(c.constants, c.rule, c.code, c.measured) for c in kept.candidates] == [
        (c.constants, c.rule, c.code, c.measured) for c in made.candidates
    ]
    assert said[0].startswith("2 of 4 configurations") and said[1].startswith("1 of 4"), "the second goes on where the first stopped"
    assert not list(tmp_path.glob("*.journal")) and sum(bool(c.measured) for c in kept.candidates) == 2
    step.kernel_source = lambda: SOURCE.replace("float", "double")
    with pytest.raises(CourseError, match="another version"):
        recorded_search.recorded("NVIDIA Pretended", tmp_path)
    with pytest.raises(CourseError, match="--search"):
        recorded_search.recorded("NVIDIA Other", tmp_path)
    assert json.loads((tmp_path / "search-nvidia-pretended.json").read_text())["about"]["date"]


def test_without_a_gpu_nothing_is_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "available", lambda: False)
    monkeypatch.setattr(gpu, "why_not", lambda: "There is no GPU here.")
    with pytest.raises(CourseError, match="no GPU"):
        recorded_search.record(tmp_path)


def test_the_model_is_in_step_with_what_was_measured_and_the_score_less_so():
    found = recorded_search.recorded()
    assert 1 > found.correlation("model") > found.correlation("score") > 0.5
    timed = [item for item in found.candidates if item.measured]
    kept = {results: found.kept(results) for results in (32, 64, 128)}
    assert sum(map(len, kept.values())) == len(timed) and all(0.5 < share < 1 for shares in kept.values() for share in shares)
    best = min(timed, key=lambda item: item.measured.milliseconds)
    assert max(kept[best.constants["TM"] * best.constants["TN"]]) < 1
    with pytest.raises(CourseError, match="Nothing of this search was timed"):
        found.at(1024).correlation("score")
