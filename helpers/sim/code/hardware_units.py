"""Sizes that every GPU of the course shares."""

WARP = 32  # threads that execute an instruction together
SECTOR_BYTES = 32  # what caches and memory move at once
