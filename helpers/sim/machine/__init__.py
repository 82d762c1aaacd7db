"""Everything that runs: lanes, memory, barriers, copies under way."""
