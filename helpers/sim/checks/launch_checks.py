"""The checks of one launch, and those of each of its chunks of blocks."""

from __future__ import annotations

from .device_places import DevicePlaces
from .observer import Checks, DeviceCheck, Observer, SharedCheck, kinds
from .protocols import LoadedKernel, Machine
from .shared_cells import SharedCells

MEANING = {"launch-limit": "a launch that the hardware refuses"}


class Unchecked:
    """A launch that nobody watches. What the machine itself refuses is still said."""

    wanted = False
    device: DevicePlaces | None = None

    def of(self, m: Machine) -> Observer:
        """What the chunk `m` tells its events."""
        return Checks([], None, [])


class LaunchChecks(Unchecked):
    """A launch that is checked. device: what is watched of device memory, or None where nothing needs to be. cluster: blocks of one."""

    wanted = True

    def __init__(self, program: LoadedKernel, device: DevicePlaces, cluster: int):
        self.program, self.cluster = program, cluster
        self.device = device if device.needed else None
        self.lasting = []
        if self.device is not None:
            self.lasting = [kind(self) for kind in kinds() if issubclass(kind, DeviceCheck) and kind.wanted(self)]

    def of(self, m: Machine) -> Observer:
        checks: list[Observer] = list(self.lasting)
        cells = SharedCells(self.program, m.shared.stride) if m.shared.size else None
        if cells is not None:
            for kind in kinds():
                if issubclass(kind, SharedCheck) and kind.wanted(self):
                    cells.checks.append(kind(m, self, cells))
            if "cluster" in self.program.uses:
                cells.expand(m)
            checks += cells.checks
        return Checks(checks, cells, [] if self.device is None else self.device.watches)
