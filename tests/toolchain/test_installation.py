"""Machines without NVRTC."""

import os
import subprocess
import sys

import pytest

from helpers.errors import CourseError
from helpers.toolchain import clang, installation
from helpers.toolchain.compile import compile_source


def test_importing_needs_no_compiler_and_no_gpu():
    program = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'cupy': raise ModuleNotFoundError('blocked')\n"
        "sys.meta_path.insert(0, Block())\n"
        "import helpers, helpers.toolchain.installation\n"
        "print(helpers.toolchain.installation.why_not())\n"
        "try: helpers.compile('__global__ void k() {}')\n"
        "except helpers.CourseError as error: print(error.message)\n"
    )
    environment = {**os.environ, installation.CHOICE: "nvrtc"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.count("Run the set-up command of the README again") == 2


@pytest.fixture
def macos(monkeypatch):
    """A Mac, as far as the choice of a compiler goes."""
    for cached in (installation.nvrtc, installation._nvrtc_compiler):
        cached.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    yield monkeypatch
    monkeypatch.undo()
    for cached in (installation.nvrtc, installation._nvrtc_compiler):
        cached.cache_clear()


def test_macos_without_clang_gets_a_sentence(macos):
    macos.setattr(clang, "program", lambda: None)
    with pytest.raises(CourseError, match="no CUDA compiler for macOS"):
        compile_source("__global__ void k() {}")
    assert "macOS" in installation.why_not()


def test_macos_compiles_with_clang(macos):
    macos.setattr(clang, "program", lambda: "/somewhere/zig")
    assert installation.compiler().name == "clang"
    assert installation.why_not() == ""
    assert installation.include_folders() == ()


@pytest.mark.parametrize(("choice", "said"), [("gcc", "it is nvrtc or clang"), ("clang", "which is not installed")])
def test_a_choice_that_cannot_be_had_is_a_sentence(monkeypatch, choice, said):
    monkeypatch.setenv(installation.CHOICE, choice)
    monkeypatch.setattr(clang, "program", lambda: None)
    assert said in installation.why_not()
