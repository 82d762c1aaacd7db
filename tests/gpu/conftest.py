"""Everything here runs on a real GPU and is skipped, with the reason, where there is none."""

from pathlib import Path

import pytest

from helpers.run import gpu


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    reason = gpu.why_not()
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
