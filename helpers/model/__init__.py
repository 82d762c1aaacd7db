"""Models of the hardware: what a GPU has (gpus.toml), how many blocks fit on it, and how long a kernel should take."""
