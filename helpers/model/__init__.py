"""Models of the hardware: what a GPU has (gpus.toml), how many blocks fit on it, and how long a kernel should take."""

from helpers.model.hardware import GPU, Capability, capability, gpu, gpus
from helpers.model.occupancy import Occupancy, occupancy

__all__ = ["GPU", "Capability", "Occupancy", "capability", "gpu", "gpus", "occupancy"]
