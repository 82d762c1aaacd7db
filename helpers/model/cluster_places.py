"""Clusters: which of them hang over the edge of C, and how many of their blocks a multiprocessor has one after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping

from helpers.sim.code.ptx import directives
from helpers.sim.code.sass import parse
from helpers.sim.counting.machine_code import BulkCopy

from .hardware import GPU

MULTICAST = ".multicast::cluster"  # of TMA's copies, in PTX


def cluster_of(compiled) -> tuple[int, int, int]:
    """Blocks per cluster (x, y, z), as a kernel requires them."""
    x, y, z, *_ = *directives(compiled.ptx, compiled.symbol).get("reqnctapercluster", (1,)), 1, 1
    return x, y, z


def hangs_over(compiled, m: int, n: int, copies: Mapping[int, BulkCopy] | None = None) -> bool:
    """Whether blocks of a cluster share copies and the last clusters of a C of m × n have a block without any of it, in the tiles that the
    kernel states. copies: what blocks copy, by index of their instruction, where that is known. On an H200 such a cluster takes up to twice
    as long as others (kernels/LOG.md, runs 17 and 19)."""
    tile = compiled.constants.get("tile_shape")
    if tile is None or MULTICAST not in compiled.ptx:
        return False
    rows, columns, *_ = tile
    below, beside = _sharing(compiled, rows, copies or {})
    return bool(math.ceil(m / rows) % below or math.ceil(n / columns) % beside)


def _sharing(compiled, rows: int, copies: Mapping[int, BulkCopy]) -> tuple[int, int]:
    """(blocks of a cluster below each other, which share B; blocks beside each other, which share A): what each copies for itself says
    where it stands. Where nothing does: beside each other where each copies its part of the tile's rows of A, otherwise below each other.
    """
    cluster, function = math.prod(cluster_of(compiled)), parse(compiled.sass).get(compiled.symbol)
    for index, copy in copies.items():
        if copy.apart and copy.tensor is not None and function is not None and not function.instructions[index].has("MULTICAST"):
            return (cluster, 1) if copy.tensor == 0 else (1, cluster)
    return (1, cluster) if box_of_a(compiled)[0] * cluster == rows else (cluster, 1)


def box_of_a(compiled) -> tuple[int, int]:
    """Rows of A and elements of K that one copy takes, as the kernel says; (0, 1) where it says nothing. A by columns lies as [K, M]."""
    first, second = compiled.constants.get("box_A", (0, 1))[:2]
    return (second, first) if compiled.constants.get("transa") == (1,) and "box_A" in compiled.constants else (first, second)


def most_blocks(blocks: int, gpu: GPU, cluster: int, resident: int, walking: int = 0) -> int:
    """How many of so many blocks the busiest multiprocessor has, where blocks of a cluster begin together, for which not every
    multiprocessor has a place. resident: blocks that share one. walking: of a persistent kernel, blocks that walk the others on each
    multiprocessor; 0 elsewhere. (Those for which there is no room come when others have walked all their tiles.)"""
    if cluster == 1:
        return math.ceil(blocks / gpu.sms)
    at_once = gpu.clusters_of(cluster, resident)
    if not walking:
        return math.ceil(blocks / cluster / at_once) * resident
    clusters = gpu.sms * walking // cluster
    each, more = divmod(blocks // cluster, clusters)  # the first so many have one more
    return resident * sum(each + (first < more) for first in range(0, clusters, at_once))
