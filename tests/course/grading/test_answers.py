"""The answer is found by its id, or by its first line; what is no notebook is a sentence; and no answer reads files of the machine."""

from __future__ import annotations

import time

import pytest
from IPython.core.inputtransformer2 import TransformerManager

import helpers
from helpers.course.exercises import FOLDER, exercise
from helpers.course.grading.answers import find, keep_to_headers, kernel_text, read_submission, starter_cell
from helpers.errors import CourseError
from tests.course.grading.submissions import FILES, answered, cell, deleted, twice

ITEM = exercise("early_exit")


def test_an_answer_is_found_by_its_id():
    notebook = answered(ITEM, "code")
    cell(notebook, "early_exit").cell_type = "raw"
    assert find(notebook.cells, "early_exit", ITEM).text == "%%cuda early_exit\ncode"


def test_the_last_of_two_counts_and_it_is_said():
    found = find(twice(ITEM, "one", "two").cells, "early_exit", ITEM)
    assert found.text.endswith("two") and "2 cells" in found.remarks[0]


def test_a_deleted_cell_is_found_by_its_first_line_if_it_was_typed_anew():
    notebook = deleted(ITEM)
    assert find(notebook.cells, "early_exit", ITEM).text is None
    notebook.cells[0].source = "%%cuda early_exit2\nother"
    assert find(notebook.cells, "early_exit", ITEM).text is None
    notebook.cells[0].source = "%%cuda early_exit\nnew"
    found = find(notebook.cells, "early_exit", ITEM)
    assert found.text == "%%cuda early_exit\nnew" and "deleted" in found.remarks[0]


GIVEN = starter_cell(ITEM)
RIGHT, OTHER = ({"cell_type": "code", "metadata": {}, "source": f"%%cuda early_exit\n{text}"} for text in ("right", "other"))


@pytest.mark.parametrize(
    ("answer", "beside", "graded", "said"),
    [
        (GIVEN, [], GIVEN, ""),
        (GIVEN, [OTHER, RIGHT], RIGHT["source"], "as it was given; the last other one"),
        (" \n", [RIGHT], RIGHT["source"], "as it was given; the last other one"),
        (GIVEN, [RIGHT, OTHER | {"source": GIVEN}], RIGHT["source"], "the last other one"),
        (GIVEN, [OTHER | {"source": GIVEN}], GIVEN, ""),
        (RIGHT["source"], [OTHER], RIGHT["source"], "the one that was given for the answer is graded"),
        (GIVEN, [OTHER | {"cell_type": "markdown"}], GIVEN, ""),
    ],
)
def test_an_answer_in_a_cell_of_its_own_counts_where_the_given_one_holds_none(answer, beside, graded, said):
    notebook = answered(ITEM, "")
    cell(notebook, "early_exit").source = answer
    found = find([*notebook.cells, *beside], "early_exit", ITEM)
    assert found.text == graded and said in "".join(found.remarks) and bool(said) == bool(found.remarks)


def test_in_a_lesson_a_starter_that_stands_behind_the_answer_is_not_the_answer():
    assert find([RIGHT, RIGHT | {"source": GIVEN}], "early_exit", ITEM).text == RIGHT["source"]
    assert find([RIGHT | {"source": GIVEN}], "early_exit", ITEM).text == GIVEN


def test_a_function_is_found_by_its_name():
    item = exercise("intensity")
    cells = [{"cell_type": "code", "source": f"import math\ndef intensity{end}(m, n, k):\n    return 1"} for end in ("", "_2")]
    assert find(cells, "intensity", item).text == cells[0]["source"]
    cells.append({"cell_type": "code", "source": "%%time\nintensity = lambda m, n, k: 1"})
    assert find(cells, "intensity", item).text == cells[2]["source"]


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_notebook_is_a_sentence(name, tmp_path):
    path = tmp_path / "early_exit.ipynb"
    path.write_text(FILES[name]())
    with pytest.raises(CourseError, match="early_exit.ipynb (is no notebook|has more than 16 MB)"):
        read_submission(path)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "of_another.ipynb").write_text("{}")
    (tmp_path / "mine.ipynb").symlink_to(tmp_path / "of_another.ipynb")
    (tmp_path / "folder").symlink_to(tmp_path)
    for path in (tmp_path / "mine.ipynb", tmp_path / "folder" / "of_another.ipynb"):
        with pytest.raises(CourseError, match="is a link"):
            read_submission(path)


SOLUTION = FOLDER / "03_early_exit.cu"
READS = [
    '#include "{path}"',
    "#include <{path}>",
    '#define SOLUTION "{path}"\n#include SOLUTION',
    '%:include "{path}"',
    '#/* a comment\n*/include "{path}"',
    '#inc\\\nlude "{path}"',
    '#in\\\r\nclude "{path}"',
    '#include_next "{path}"',
    '#\x0binclude "{path}"',
    '#\u00a0include "{path}"',
    '/* */ #include "{path}"',
    'const char* hidden = R"(/*)";\n#include "{path}"\n// */',
    'const char* hidden = R"(# /*)";\n#include "{path}" // */ include',
    '#/**//*/**/ /***/include "{path}"',
    "#include <cuda/../../../../../../../../../../..{path}>",
    '#include "cuda_fp16.h" /*\n*/\n#  include "{path}"',
    '#import "{path}"',
    '#embed "{path}"',
    '#if __has_include("{path}")\n#endif',
]


@pytest.mark.parametrize("text", READS)
def test_no_answer_reads_a_file(text):
    """Among them the solution, which would pass: the compiler itself would open it."""
    with pytest.raises(CourseError, match="is not allowed in an answer"):
        kernel_text(f"%%cuda early_exit\n{text.replace('{path}', str(SOLUTION))}\n")


@pytest.mark.parametrize(
    "text", ["#" + "/**/" * 20_000 + "x", "#/*" * 30_000, "#/*" * 15_000 + "*/" + "/**/" * 10_000 + "x", "# \n" * 30_000]
)
def test_no_text_holds_the_reading_up(text):
    """A comment whose end was sought behind the next ones, too, took twice the time for each of them."""
    started = time.process_time()
    keep_to_headers(text)
    assert time.process_time() - started < 5


def test_the_compiler_would_have_opened_it():
    assert helpers.compile(f'#include "{SOLUTION}"\n').registers


@pytest.mark.parametrize(
    "text", ["#include <cuda_fp16.h>", '#include "mma.h"  // wmma', "  #  include <cstdint>", "#include <vector> /* host */"]
)
def test_headers_are_included_as_ever(text):
    kernel = kernel_text(f"%%cuda early_exit\r\n{text}\r\nint x; // do include this, # include that\r")
    assert kernel.source == f"\n{text}\nint x; // do include this, # include that\n"


@pytest.mark.parametrize(
    "text", ["\n  \n%%cuda early_exit\nint x;\n", "  %%cuda early_exit\n  int x;\n", "\r\n\t%%cuda early_exit\r\n\tint x;\r\n"]
)
def test_what_a_notebook_runs_is_read(text):
    assert kernel_text(text).source == "\nint x;\n"
    assert TransformerManager().transform_cell(text.replace("\r\n", "\n")).startswith("get_ipython().run_cell_magic('cuda', 'early_exit'")


@pytest.mark.parametrize(
    ("kernels", "entry"),
    [
        (("early_exit",), None),
        (("trial", "early_exit"), "early_exit"),
        (("early_exit", "trial"), "early_exit"),
        (("trial", "other"), None),
    ],
)
def test_of_several_kernels_the_one_of_the_cell_s_name_is_meant(kernels, entry):
    source = "".join(f"__global__ void {name}(int a) {{}}\n" for name in kernels)
    assert kernel_text(f"%%cuda early_exit\n{source}").entry == entry
    assert kernel_text(f"%%cuda early_exit --entry trial\n{source}").entry == "trial"


def test_the_line_of_the_magic():
    kernel = kernel_text("%%cuda early_exit --entry 'gemm<64>' -o=-I/home -o -ftz=true\nint x;")
    assert kernel.entry == "gemm<64>" and "-I/home" in kernel.remarks[0]
    for text in ("int x;", "%%cuda early_exit 'x\nint x;"):
        with pytest.raises(CourseError):
            kernel_text(text)
