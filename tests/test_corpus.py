"""The dump of what the machine says, and the comparison that finds the one number that changed."""

from __future__ import annotations

import copy
import json

import pytest

from tests import corpus


@pytest.fixture(scope="module")
def records():
    return corpus.dump("kernels/01_naive/[ac][lo]*") | corpus.dump("bugs/bounds/c*")


@pytest.mark.slow
def test_a_dump_holds_what_was_asked_for(records):
    engines = records["kernels/01_naive/counted"]
    for name, item in engines.items():
        assert item["engine"] == name and item["counters"] and item["by_line"] and item["findings"] == []
    assert engines["numpy"]["predicted"]["milliseconds"] > 0
    assert engines["numpy"]["results"] == engines["native"]["results"]
    assert any(item["numpy"]["findings"] for key, item in records.items() if key.startswith("bugs"))


def test_the_same_code_says_the_same(records, tmp_path, capsys):
    key = "kernels/01_naive/counted"
    again = corpus.dump(key)
    assert corpus.differences({key: records[key]}, again) == []
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    corpus.write(records, old)
    corpus.write(json.loads(old.read_text()), new)
    assert old.read_bytes() == new.read_bytes()
    assert corpus.main(["compare", str(old), str(new)]) == 0
    assert "identical" in capsys.readouterr().out


def test_one_changed_number_is_found(records, tmp_path, capsys):
    key, name = "kernels/01_naive/counted", "smsp__inst_executed.sum"
    changed = copy.deepcopy(records)
    line = next(line for line, counters in changed[key]["numpy"]["by_line"].items() if name in counters)
    before = changed[key]["numpy"]["by_line"][line][name]
    changed[key]["numpy"]["by_line"][line][name] += 1
    assert corpus.differences(records, changed) == [
        {"kernel": key, "engine": "numpy", "counter": name, "line": line, "old": before, "new": before + 1}
    ]
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    corpus.write(records, old)
    corpus.write(changed, new)
    assert corpus.main(["compare", str(old), str(new)]) == 1
    said = capsys.readouterr().out
    assert all(text in said for text in (key, "[numpy]", name, f"line {line}", f"old: {before}", f"new: {before + 1}"))
    assert corpus.main(["compare", str(old), str(new), "--only", "bugs/*"]) == 0


def test_what_is_gone_or_of_another_type_is_a_difference(records):
    key = "kernels/01_naive/counted"
    fewer = {name: item for name, item in records.items() if name != key}
    assert [row["new"] for row in corpus.differences(records, fewer)] == [corpus.MISSING]
    assert [row["old"] for row in corpus.differences(fewer, records)] == [corpus.MISSING]
    one = {"a": {"numpy": {"findings": [], "counters": {"x": 1}}}}
    for other in ({"x": 1.0}, {"x": True}, {"x": 1, "y": 0}, {}):
        assert corpus.differences(one, {"a": {"numpy": {"findings": [], "counters": other}}})


def test_a_crash_is_a_record():
    def go():
        raise KeyError("lost")

    item = corpus.record(corpus.Case("some/case", go), "numpy")
    assert (item["error"], item["message"], item["findings"]) == ("KeyError", "'lost'", [])


def test_what_json_lacks_is_text():
    assert corpus.plain({1: [float("nan"), float("-inf"), 2.5, None, True]}) == {"1": ["nan", "-inf", 2.5, None, True]}
