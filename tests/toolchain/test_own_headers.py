"""Headers in the reader's own folders: their host code is left out as if they were pasted, and messages keep their file and line."""

import pytest

import helpers
from helpers.toolchain import own_headers

CHECK = """#pragma once
#include <cstdio>
#include <nowhere.h>
constexpr int WIDTH = 64;
#define CHECK(x) do { if ((x) != cudaSuccess) std::exit(1); } while (0)
inline void report(cudaError_t error, const char* what) {
    if (error != cudaSuccess) { std::fprintf(stderr, "%s: %s\\n", what, cudaGetErrorString(error)); std::exit(EXIT_FAILURE); }
}
inline int rounded(int a, int b) { return (a + b - 1) / b; }
"""
CELL = '#include "check.cuh"\n__global__ void k(float* a) { a[0] = WIDTH; }\nint main() { report(cudaDeviceSynchronize(), "k"); }\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "check.cuh").write_text(CHECK)
    return tmp_path


def compiled(source, *folders):
    return helpers.compile(source, options=[f"-I{folder}" for folder in folders]).compiled


def test_a_header_s_host_code_is_left_out_and_named(folder):
    notes = compiled(CELL, folder).warnings
    assert (
        notes[0].startswith("Host code is left out: main (line 3), report (check.cuh, line 6)") or "report (check.cuh, line 6)" in notes[0]
    )
    assert "Not here, and left out: nowhere.h. The kernel compiles without." in notes


def test_what_the_kernel_calls_of_it_stays(folder):
    compiled(CELL.replace("= WIDTH", "= rounded(7, 2)"), folder)


def test_headers_that_include_each_other_are_each_read_once(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "one.cuh").write_text('#pragma once\n#include "../check.cuh"\n#include "two.cuh"\n#include "../../beside.cuh"\n')
    (folder / "deep" / "two.cuh").write_text('#pragma once\n#include <deep/one.cuh>\n#include "check.cuh"\nstruct Two { int x; };\n')
    (folder / "inside").mkdir()
    (folder / "inside" / "main.cuh").write_text('#include "../deep/one.cuh"\n#include "../deep/two.cuh"\n')
    (folder.parent / "beside.cuh").write_text("#pragma once\n#define DEVICE __device__\nDEVICE inline int two() { return 2; }\n")
    cell = '#include "check.cuh"\n#include <main.cuh>\n__global__ void k(int* a) { Two t{two()}; a[0] = t.x; }\n'
    compiled(cell, folder, folder / "inside")


def test_mistakes_are_named_at_their_own_file_and_line(folder):
    with pytest.raises(
        helpers.CompileError, match=r"\(1 error\)\.\nNot here, and left out: nowhere\.h\..*\nline 2: error: identifier \"WIDE\""
    ) as said:
        compiled(CELL.replace("= WIDTH", "= WIDE"), folder)
    assert said.value.line == 2 and "check.cuh, line" not in said.value.message
    (folder / "check.cuh").write_text(CHECK + "__device__ int broken() { return missing; }\n")
    with pytest.raises(helpers.CompileError, match=r"\(1 error\)\.\nNot here, .*\nin check.cuh, line 10: error: identifier \"missing\""):
        compiled(CELL.replace("= WIDTH", "= broken()"), folder)


def test_only_what_an_entry_needs_of_it_must_compile(folder):
    (folder / "check.cuh").write_text(CHECK + "__global__ void noise(Unknown* a) {}\n")
    notes = helpers.compile(CELL, "k", options=[f"-I{folder}"]).compiled.warnings
    assert any("does not need, and it is left out: noise (check.cuh, line 10)" in note for note in notes)


def test_a_changed_header_is_read_again(folder):
    (folder / "value.cuh").write_text('#include "more.cuh"\n')
    cell = '#include "value.cuh"\n__global__ void k(float* a) { a[0] = VALUE; }'
    found = []
    for value in "12":
        (folder / "more.cuh").write_text(f"#define VALUE {value}\n")
        found.append(compiled(cell, folder).ptx)
    assert found[0] != found[1]


def test_a_library_is_left_to_the_compiler(folder, monkeypatch):
    assert own_headers.joined(CELL, [str(folder)], []) is not None
    assert own_headers.joined(CELL, [], [str(folder)]) is None  # CUDA's own
    monkeypatch.setattr(own_headers, "_MOST_TEXT", 100)
    assert own_headers.joined(CELL, [str(folder)], []) is None
    with pytest.raises(helpers.CompileError, match="in check.cuh, line 3: error: cannot open source file"):
        compiled(CELL, folder)


def test_offsets_are_those_of_the_documents(folder):
    cell = own_headers.joined(CELL, [str(folder)], [])
    place = cell.offset("check.cuh", 4, 14)
    assert cell.text[place:].startswith("WIDTH = 64") and cell.place(place) == ("check.cuh", 4)
    assert cell.text[cell.offset("", 2, 11) :].startswith("void k(") and cell.place(cell.offset("", 2, 11)) == ("", 2)
    assert cell.offset("other.h", 1, 0) is None and cell.split(cell.text) == dict(cell.documents)
