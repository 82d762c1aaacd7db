"""Folders of the reader's are the same ones for a command, and for what it starts elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

from helpers import paths
from helpers.front import cli
from tests import ROOT


def test_a_relative_home_stays_where_it_was_first_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMM_LADDER_HOME", "work")
    cli.parser()  # as every command begins
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert paths.data_folder() == tmp_path / "work"
    assert paths.cache_folder("x") == tmp_path / "work" / "cache" / "x"
    code = "from helpers.paths import data_folder; print(data_folder())"
    found = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert found.stdout.strip() == str(tmp_path / "work")


def test_a_home_that_is_absolute_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", f"{tmp_path}/./home")
    assert paths.data_folder() == tmp_path / "home" and os.environ["GEMM_LADDER_HOME"] == f"{tmp_path}/./home"


def test_a_relative_shared_cache_stays_where_it_was_first_meant(tmp_path, monkeypatch):
    (tmp_path / "class" / "ptx").mkdir(parents=True, mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMM_LADDER_SHARED_CACHE", "class")
    cli.parser()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert paths.shared_cache_folder("ptx") == tmp_path / "class" / "ptx"
    assert os.environ["GEMM_LADDER_SHARED_CACHE"] == str(tmp_path / "class")
