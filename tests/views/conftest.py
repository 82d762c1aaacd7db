"""Shared by the pictures' tests."""

import pytest

from tests.views.view_builders import gemm_run


def texts(ax) -> list[str]:
    """Every non-empty text in the picture, ticks left out."""
    return [text.get_text() for text in ax.texts if text.get_text()]


@pytest.fixture
def said():
    """All text of a picture as one string."""
    return lambda ax: "\n".join(texts(ax))


@pytest.fixture(scope="session")
def shared_tile_run():
    return gemm_run("shared")


@pytest.fixture(scope="session")
def naive_run():
    return gemm_run("naive")


@pytest.fixture(scope="session")
def coalesced_run():
    return gemm_run("coalesced")
