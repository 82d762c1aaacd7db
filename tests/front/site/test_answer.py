"""The machine in the page says what the course says, and needs nothing but NumPy.

Tests of: helpers.front.site.browser_python, helpers.front.site.trials
"""

import json
import subprocess
import sys

import pytest

import helpers
from helpers.course import measures
from helpers.course.steps import get
from helpers.errors import CourseError
from helpers.front.site import browser_python, build, trials
from helpers.front.site.answer import PageMachine, recorded
from helpers.run import gemm

# Every other package than NumPy is missing in the browser, and so are some parts of Python.
ALONE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cupy", "matplotlib", "ml_dtypes", "platformdirs", "llvmlite", "psutil", "sqlite3", "ssl", "IPython"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
from answer import PageMachine
import helpers
assert helpers.__file__.startswith(sys.argv[1]), helpers.__file__
machine = PageMachine()
machine.add("naive", open(sys.argv[2], encoding="utf-8").read())
print(machine.ask('{"kernel": "naive", "size": 64}'))
"""


@pytest.fixture(scope="module")
def naive():
    kernel = helpers.reference("naive")
    shape = gemm.geometry(kernel)
    return recorded(kernel.compiled, shape.block, shape.tile, None)


def test_it_runs_from_the_zip_with_numpy_alone_and_counts_as_the_lesson_expects(naive, tmp_path):
    (tmp_path / "machine.zip").write_bytes(browser_python.machine())
    (tmp_path / "naive.json").write_text(naive, encoding="utf-8")
    command = [sys.executable, "-I", "-c", ALONE, str(tmp_path / "machine.zip"), str(tmp_path / "naive.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [(row["place"], row["each"], row["unit"]) for row in answer["rows"]] == [
        ("load of A", 32, "sectors"), ("load of B", 1, "sectors"), ("store to C", 32, "sectors"),
    ]  # fmt: skip
    assert answer["error"] == 0 and answer["lanes"] == list(range(32)) and answer["used"] == 128


def test_conflicts_and_banks_are_those_of_the_run():
    step = get("shared_tile")
    worst = next(one for one in trials.TRIALS["shared_tile"].variants if one.name == "tile of A transposed")
    kernel = helpers.compile(worst.source(step))
    shape = gemm.geometry(kernel)
    machine = PageMachine()
    machine.add("worst", recorded(kernel.compiled, shape.block, shape.tile, None))
    answer = json.loads(machine.ask('{"kernel": "worst", "size": 32, "place": 99, "warp": 99, "turn": 99}'))
    run = gemm.run(kernel, gemm.Problem(32, 32, 32), on="cpu")
    assert sum(row["conflicts"] or 0 for row in answer["rows"]) == measures.count(
        run, measures.names.shared_conflicts("ld")
    ) + measures.count(run, measures.names.shared_conflicts("st"))
    assert answer["warp"] == 31 and {row["unit"] for row in answer["rows"]} == {"sectors", "wavefronts"}


@pytest.mark.parametrize("slug", trials.TRIALS)
def test_what_is_offered_can_be_made_of_the_kernels_as_they_are(slug):
    assert all(one.source(get(slug)) for one in trials.TRIALS[slug].variants)


def test_other_bytes_than_pyodide_s_are_not_published(tmp_path):
    (tmp_path / "pyodide.js").write_text("other", encoding="utf-8")
    with pytest.raises(CourseError, match="is not what Pyodide"):
        browser_python.write(tmp_path, tmp_path / "site")
    with pytest.raises(CourseError, match="no folder of Pyodide"):
        browser_python.write(tmp_path / "none", tmp_path / "site")


def test_a_folder_without_pyodide_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(CourseError, match="There is no pyodide.* in .*none: it is no folder of Pyodide"):
        build.build(tmp_path / "site", ["1"], tmp_path / "none")
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["mine"]
