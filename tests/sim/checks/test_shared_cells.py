"""Names of shared variables in messages."""

from __future__ import annotations

import pytest

from helpers.sim.checks.shared_cells import plain_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("_ZZ4gemmE2As", "As"), ("_ZZN2ns4gemmILi64EEEviE4tile", "tile"), ("_ZN2ns4smemE", "smem"), ("smem", "smem"), ("_ZZ1kvE2As_0", "As")],
)
def test_shared_variables_are_called_what_the_source_calls_them(symbol, name):
    assert plain_name(symbol) == name
