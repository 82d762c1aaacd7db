"""The cache of compiled kernels is used, and never lies."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import cache_folder
from helpers.toolchain import compile as compiler
from helpers.toolchain import installation
from helpers.toolchain.compile import compile_source

COPY = """__global__ void copy(const float* __restrict__ source, float* target, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) target[i] = source[i];
}
"""


def _entries():
    folder = cache_folder("kernels")
    return {path.name: path for path in folder.iterdir()}


def test_cache_is_used_and_keyed_on_what_matters(monkeypatch):
    source = COPY.replace("copy", "cached_kernel")
    first = compile_source(source)
    monkeypatch.setattr(compiler, "_compile", lambda *args: pytest.fail("compiled again"))
    assert compile_source(source) == first
    monkeypatch.undo()
    assert compile_source(source, arch="sm_80").arch == "sm_80"
    assert compile_source(source + "\n").source == source + "\n"


def test_what_an_edited_toolchain_makes_of_a_source_is_not_taken_from_the_cache(monkeypatch, tmp_path):
    source, folder = COPY.replace("copy", "edited"), Path(installation.__file__).parent
    first, before = compile_source(source), installation.own_identity()
    copied = shutil.copytree(folder, tmp_path / "toolchain", ignore=shutil.ignore_patterns("__pycache__"))
    assert installation.own_identity(copied) == before
    with (copied / "host_code.py").open("a", encoding="utf-8") as file:
        file.write("# another way to read a file\n")
    edited = installation.own_identity(shutil.move(copied, tmp_path / "edited"))
    monkeypatch.setattr(installation, "own_identity", lambda: edited)
    assert edited != before and compile_source(source).key != first.key


def test_a_damaged_cache_entry_is_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))  # other tests write to the cache that all share
    source = COPY.replace("copy", "damaged")
    first = compile_source(source)
    (name,) = _entries()
    for damage in ["", "{}", "not json", json.dumps({"cubin": 3})]:
        _entries()[name].write_text(damage)
        assert compile_source(source) == first


def test_no_cache_folder_is_no_error(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder should be")
    monkeypatch.setenv("GEMM_LADDER_HOME", str(blocked))
    compiled = compile_source(COPY)
    assert compiled.entry == "copy" and "LDG" in compiled.sass


def test_two_processes_fill_the_cache_at_once(tmp_path):
    program = (
        "from helpers.toolchain.compile import compile_source\n"
        "for i in range(6):\n"
        "    c = compile_source('__global__ void k(float* p) { p[%d] = 1; }' % i)\n"
        "    assert c.entry == 'k' and c.sass\n"
    )
    environment = {**os.environ, "GEMM_LADDER_HOME": str(tmp_path)}
    jobs = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(3)]
    assert [job.wait(120) for job in jobs] == [0, 0, 0]
