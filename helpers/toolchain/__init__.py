"""Source to machine code: NVIDIA's compiler, its cache and what it says."""
