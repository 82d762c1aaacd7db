"""The GEMM Ladder: helpers behind the notebooks."""
