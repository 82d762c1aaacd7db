"""Two warps at a missing barrier: what is overwritten, and what is read wrongly."""

import numpy as np
import pytest

from helpers.sim.machine.trace import BARRIER
from helpers.views.canvas import PICTURES, NothingToSee
from helpers.views.overtaking import overtaking_at
from tests.views.view_builders import Allocation, Site, Trace, access_rows, run_of

WORDS = 64
OWN = [np.arange(32) * 4, (32 + np.arange(32)) * 4]  # what each of two warps stores
STORE, LOAD = 0, 1
SITES = [Site(0, 3, "shared", "st"), Site(1, 5, "shared", "ld")]


def run(*program: str):
    """A block of two warps that execute `program` side by side: "store" to its own words, "load" those of the other warp, or "sync"."""
    entries, addresses, barriers = [], [], []
    for name in program:
        for warp in (0, 1):
            if name == "sync":
                barriers.append((0, warp, 4, len(entries), "sync"))
                entries.append(None)
            else:
                entries.append((STORE if name == "store" else LOAD, 0, warp, 0))
                addresses.append(OWN[warp if name == "store" else 1 - warp])
    rows = np.concatenate([access_rows([entry]) for entry in entries if entry])
    rows["order"] = [order for order, entry in enumerate(entries) if entry]
    array = Allocation("s", "shared", 0, 4 * WORDS, (4 * WORDS,), 1, "uint8")
    trace = Trace(rows, np.array(addresses), SITES, [array], barriers=np.array(barriers, BARRIER), block=(64, 1, 1))
    return run_of(trace, "__shared__ float s[2][32];\n\nstore\n\nload")


def test_with_both_barriers_the_fast_warp_waits():
    now = overtaking_at(run("store", "sync", "load", "sync", "store", "sync", "load"))
    assert (now.interval, now.waits, now.early.any(), now.wrong.any()) == (1, True, False, False)
    assert PICTURES["overtaking"].draw(run("store", "sync", "load", "sync", "store")).alt.startswith("Warp 1 waits at the next barrier")


def test_without_the_second_barrier_it_overwrites_what_the_other_still_reads():
    twice = run("store", "sync", "load", "store", "sync", "load")
    now = overtaking_at(twice)
    assert now.array == "s" and now.shape == (2, 32)
    assert [event.stores for event in now.events[: now.done]] == [False, True]
    assert np.flatnonzero(now.early).tolist() == list(range(32, 64)) and not now.wrong.any()
    later = overtaking_at(twice, step=now.step + 1)
    assert np.flatnonzero(later.wrong).tolist() == list(range(32, 64)) and not later.early.any()
    alt = PICTURES["overtaking"].draw(twice).alt
    assert alt.startswith("32 elements of s overwritten, and warp 0 still has to read them") and "has made 2, warp 0 0" in alt
    legend = PICTURES["overtaking"].draw(twice).get_legend()
    outline = next(patch for patch, text in zip(legend.get_patches(), legend.get_texts(), strict=True) if text.get_text() == "touched now")
    assert not outline.get_facecolor()[3]


def test_without_the_first_barrier_it_reads_what_is_not_there_yet():
    now = overtaking_at(run("store", "load", "sync", "store"))
    assert np.flatnonzero(now.wrong).tolist() == list(range(32))


def test_either_warp_may_be_the_fast_one_and_controls_stay_in_range():
    twice = run("store", "sync", "load", "store", "sync", "load")
    now = overtaking_at(twice, slow=1, fast=1, interval=99, step=99)
    assert (now.slow, now.fast, now.interval, now.step) == (1, 0, now.intervals - 1, now.steps - 1)
    array, _, slow, fast, interval, step = PICTURES["overtaking"].controls(twice)
    assert (array.default, slow.default, fast.default, interval.default, step.buttons) == ("s", 0, 1, 1, True)


def test_where_nothing_is_read_there_is_nothing_to_overtake():
    with pytest.raises(NothingToSee, match="no warp can overtake"):
        overtaking_at(run("store", "sync"))
