"""On a GPU: step 18 gives the bits that the SIMT machine gives, by either format and whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.run import gemm
from tests.run.test_passes import kernel, numbers


@pytest.mark.parametrize("promoted", [1, 0])
@pytest.mark.parametrize("name", ["normal", "rows and columns", "elements", "denormal", "cancelling"])
def test_the_machine_gives_the_same_bits(name, promoted):
    a, b = (x.astype(np.float32) for x in numbers(name))
    results = []
    for on in ("cpu", "gpu"):
        c = np.full((len(a), b.shape[1]), np.nan, np.float32)
        run = gemm.run(kernel(PROMOTE=promoted), gemm.Problem(*c.shape, len(b)), on=on, arrays=(a, b, c), counters=False)
        assert run.on == on
        results.append(c)
    assert np.array_equal(*(c.view(np.uint32) for c in results))
