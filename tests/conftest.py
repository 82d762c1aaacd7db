"""Shared by all tests: no test touches the reader's own progress or cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="session")
def _home(tmp_path_factory):
    """A data folder for this test session; compiled kernels are shared by its tests."""
    before = os.environ.get("GEMM_LADDER_HOME")
    os.environ["GEMM_LADDER_HOME"] = str(tmp_path_factory.mktemp("home"))
    yield
    if before is None:
        del os.environ["GEMM_LADDER_HOME"]
    else:
        os.environ["GEMM_LADDER_HOME"] = before
