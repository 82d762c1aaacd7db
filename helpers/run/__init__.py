"""The one launch call, the one problem (a matrix product), and the GPU."""
