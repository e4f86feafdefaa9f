"""What the Ascend 950 is published to have, and the least time that a simulated launch would take there.

The numbers are of public documents and of a platform file whose origin could not be checked; core counts differ by
tier and are asked of the device where there is one. What is derived is an estimate of a floor: nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .program import Run


@dataclass(frozen=True)
class Tier:
    """One product tier.

    Attributes:
        name: of the tier.
        cube_cores, vector_cores: on the chip.
        clock: of the cores, Hz.
        memory: bytes a second, all cores together.
        per_core: bytes a cycle that one core moves from and to memory.
    """

    name: str
    cube_cores: int
    vector_cores: int
    clock: float
    memory: float
    per_core: int


SERVER = Tier("950PR, server", 32, 64, 1.65e9, 1.6e12, 27)
PCIE = Tier("950PR, PCIe", 28, 56, 1.65e9, 1.25e12, 27)
TIERS = (SERVER, PCIE)


@dataclass(frozen=True)
class Floor:
    """The least seconds that launches take on a tier, if every core is busy and everything overlaps.

    Attributes:
        memory: their bytes from and to global memory (not those between the cores of a block), at the memory's rate.
        cube: their steps of the matrix unit, one a cycle of each core.
        moved: those bytes.
        steps: those steps.
    """

    memory: float
    cube: float
    moved: int
    steps: int

    @property
    def seconds(self) -> float:
        """The larger of both."""
        return max(self.memory, self.cube)


def floor(runs: Iterable[Run], tier: Tier = SERVER) -> Floor:
    """The floor of launches that were simulated. Threads' accesses count each, cached or not."""
    moved = steps = 0
    for run in runs:
        moved += run.report.moved
        steps += run.report.cube_steps
    return Floor(moved / tier.memory, steps / (tier.cube_cores * tier.clock), moved, steps)
