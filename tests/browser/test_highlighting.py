"""A cell that starts with %%cuda is CUDA C++, as soon as it does and only as long as it does."""

import time

import pytest

NAME = "highlighting.ipynb"
KERNEL = """%%cuda twice
// __global__ in a comment stays a comment
template <int N> __device__ float4 half_of(float4 value);
extern "C" __global__ __launch_bounds__(256) void twice(float* __restrict__ x) {
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (warpSize == 32) x[threadIdx.x] = 2 * tile[threadIdx.x];  // "%%cuda"
}
"""
PYTHON = "def twice(x):\n    return 2 * x\n"


def assert_coloured(cell, kind: str, words: list[str]) -> None:
    """The words in `cell` that are coloured as CUDA's `kind` are these. An editor gets some time, for it colours when idle."""
    found = cell.locator(f".cm-content .cuda-{kind}")
    deadline = time.monotonic() + 10
    while found.all_inner_texts() != words and time.monotonic() < deadline:
        cell.page.wait_for_timeout(50)
    assert found.all_inner_texts() == words


def language(cell) -> str | None:
    return cell.locator(".cm-content").get_attribute("data-language")


@pytest.fixture(scope="module")
def opened(lab, open_shared):
    """A notebook with a kernel cell and a Python cell, on the page that these tests share."""
    lab.write(NAME, {"kernel": KERNEL, "python": PYTHON})
    return open_shared(NAME)


@pytest.fixture
def notebook(opened, no_complaints):
    """That notebook with nothing changed."""
    opened.page.evaluate(
        """sources => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            while (notebook.model.cells.length > sources.length) notebook.model.sharedModel.deleteCell(notebook.model.cells.length - 1);
            sources.forEach((source, index) => notebook.model.cells.get(index).sharedModel.setSource(source));
        }""",
        [KERNEL, PYTHON],
    )
    return opened


def wait_for_language(cell, name: str) -> None:
    cell.locator(f".cm-content[data-language='{name}']").wait_for()


def test_cuda_words_are_coloured_and_comments_are_not(notebook):
    cell = notebook.cell("%%cuda twice")
    wait_for_language(cell, "cuda")
    assert_coloured(cell, "keyword", ["__device__", "__global__", "__launch_bounds__", "__restrict__", "__shared__"])
    assert_coloured(cell, "variable", ["threadIdx", "threadIdx", "warpSize", "threadIdx", "threadIdx"])
    assert_coloured(cell, "type", ["int", "float4", "float4", "void", "float", "float"])
    assert_coloured(cell, "function", ["__syncthreads"])
    notebook.screenshot("highlighting-light")


def test_python_cells_stay_python(notebook):
    assert language(notebook.cell("def twice")) == "python"


def test_cpp_around_cuda_words_is_understood(notebook):
    """Without the specifiers read as C++, the grammar takes the lines around them for errors and loses its way."""
    cell = notebook.cell("%%cuda twice")
    wait_for_language(cell, "cuda")
    colour = "element => getComputedStyle(element).color"
    plain = cell.locator(".cm-content").evaluate(colour)
    words = {text: cell.locator(f".cm-content span:text-is('{text}')").first for text in ("extern", "template", "if", "twice")}
    assert {text: word.evaluate(colour) == plain for text, word in words.items()} == dict.fromkeys(words, False)


def test_removing_and_adding_the_magic_line_changes_the_language(notebook):
    cell = notebook.cell("%%cuda twice")
    wait_for_language(cell, "cuda")
    editor = cell.locator(".cm-content")
    editor.click()
    for _ in range(3):  # select all of the editor, whatever the cursor was in
        notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.insert_text("print('Python now')")
    wait_for_language(cell, "python")
    assert_coloured(cell, "keyword", [])
    notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.insert_text("%%cuda again\n__global__ void again() {}")
    wait_for_language(cell, "cuda")
    assert_coloured(cell, "keyword", ["__global__"])


def test_the_language_survives_a_kernel_restart(notebook):
    """A notebook sets the language of all its cells when its kernel says what it speaks."""
    cell = notebook.cell("%%cuda twice")
    wait_for_language(cell, "cuda")
    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    notebook.page.wait_for_timeout(1000)
    wait_for_language(cell, "cuda")
    assert language(notebook.cell("def twice")) == "python"


def test_a_new_cell_is_watched_too(notebook):
    notebook.cell("def twice")
    notebook.command("notebook:insert-cell-below")
    cell = notebook.page.locator(".jp-Cell.jp-mod-active")
    cell.locator(".cm-content").click()
    notebook.page.keyboard.insert_text("%%cuda fresh\n__device__ int x;")
    wait_for_language(cell, "cuda")


def test_the_dark_theme_has_colours_of_its_own(notebook):
    cell = notebook.cell("%%cuda twice")
    wait_for_language(cell, "cuda")
    word = cell.locator(".cuda-keyword").first
    light = word.evaluate("element => getComputedStyle(element).color")
    notebook.set_theme("JupyterLab Dark")
    dark = word.evaluate("element => getComputedStyle(element).color")
    notebook.screenshot("highlighting-dark")
    notebook.set_theme("JupyterLab Light")
    assert light != dark


@pytest.mark.slow
def test_a_cuda_file_in_the_editor_is_cuda(page, lab):
    (lab.root / "plain.cu").write_text("__global__ void plain() {}\n")
    page.goto(f"{lab.url}/lab/tree/plain.cu?reset&token={lab.token}")
    editor = page.locator(".jp-FileEditor")
    wait_for_language(editor, "cuda")
    assert_coloured(editor, "keyword", ["__global__"])
