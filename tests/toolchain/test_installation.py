"""Machines without NVRTC."""

import subprocess
import sys

import pytest

from helpers.errors import CourseError
from helpers.toolchain import installation
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
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.count("Run the set-up command of the README again") == 2


def test_macos_gets_a_sentence(monkeypatch):
    installation.nvrtc.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    try:
        with pytest.raises(CourseError, match="no CUDA compiler for macOS"):
            compile_source("__global__ void k() {}")
        assert "macOS" in installation.why_not()
    finally:
        installation.nvrtc.cache_clear()
