"""How much may be done at once."""

from __future__ import annotations

import os


def available() -> int:
    """Processors that this process may use, at least 1. (A container's share of their time is not in it.)"""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
