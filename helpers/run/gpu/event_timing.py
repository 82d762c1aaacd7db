"""Times that can be trusted: events on a stream of our own; the clock is warmed up first; the L2 cache is
overwritten before every sample; a sample is one launch, or a batch of launches when one is shorter than
`SAMPLE_MILLISECONDS`, because an event cannot resolve less; while the cache is being overwritten the host queues the
whole sample, so that launch overhead on the host is not measured. The figure is the median of the samples, with the
inter-quartile range as its spread. Kernels that are compared are measured in turn, sample by sample, because the card's
power limit makes the same kernel faster or slower within seconds.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import failures, presence, properties

SAMPLE_MILLISECONDS = 0.2  # a sample lasts at least this long
WARM_UP_SECONDS = 0.2  # long enough for the clock to rise
NOISY = 0.05  # a spread above this is flagged


@dataclass(frozen=True)
class Timing:
    """How long a launch took. `spread` is the inter-quartile range of the samples over their median.

    clock_mhz: the SM clock while it ran, None where the driver does not say. method: how a sample was taken.
    noisy: why the figure should not be trusted, or "".
    """

    milliseconds: float
    spread: float
    samples: int
    clock_mhz: float | None
    device: str
    method: str = "one launch"
    noisy: str = ""


@functools.cache
def own_stream():
    return presence.need().cuda.Stream(non_blocking=True)


def new_event():
    return presence.need().cuda.Event()


class Flush:
    """Overwrites the L2 cache, and keeps the GPU busy while the host queues a sample."""

    _instance = None

    def __init__(self):
        cupy = presence.need()
        self._bytes = min(max(2 * properties.device().l2_bytes, 64 << 20), 512 << 20)
        self._memory = cupy.cuda.alloc(self._bytes)

    @classmethod
    def shared(cls) -> Flush:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def overwrite(self, stream, times: int = 1) -> None:
        for _ in range(times):
            self._memory.memset_async(0, self._bytes, stream)


class _Sampler:
    """Takes samples of one function that launches something on the current stream."""

    def __init__(self, name: str, once: Callable[[], None], stream):
        self.name, self._once, self._stream = name, once, stream
        self.batch, self._delay = 1, 2
        self.times: list[float] = []
        self.host_limited = 0

    def warm_up(self, seconds: float) -> None:
        """Launch until `seconds` have passed and the batch is long enough to time; at least twice."""
        end = time.monotonic() + seconds
        self.sample()
        while True:
            milliseconds = self.sample()
            self.batch = max(1, min(64, math.ceil(SAMPLE_MILLISECONDS / max(milliseconds, 1e-4))))
            if time.monotonic() > end:
                break
        self.times.clear()
        self.host_limited = 0

    def sample(self) -> float:
        """Milliseconds per launch of one sample, kept in `times`."""
        import cupy

        start, stop = new_event(), new_event()
        for _ in range(6):
            Flush.shared().overwrite(self._stream, self._delay)
            start.record(self._stream)
            for _ in range(self.batch):
                self._once()
            stop.record(self._stream)
            # Had the GPU caught up before everything was queued? Then the host was timed, not the GPU.
            late = failures.happened(start)
            failures.wait(stop, self.name)
            if not late:
                break
            self._delay = min(2 * self._delay, 256)
        self.host_limited += late
        self.times.append(cupy.cuda.get_elapsed_time(start, stop) / self.batch)
        return self.times[-1]

    def clock(self) -> float | None:
        """The SM clock while this runs."""
        typical = max(statistics.median(self.times), 1e-4)
        for _ in range(max(1, min(256, math.ceil(5.0 / typical)))):
            self._once()
        stop = new_event()
        stop.record(self._stream)
        clock = properties.clock_mhz()
        failures.wait(stop, self.name)
        return clock

    @property
    def method(self) -> str:
        what = "one launch" if self.batch == 1 else f"a batch of {self.batch} launches"
        return f"median of {len(self.times)} samples of {what}, L2 overwritten before each"


def interleave(
    work: Mapping[str, Callable[[], None]], samples: int = 20, seconds: float = 3.0, warm_up: float = WARM_UP_SECONDS
) -> dict[str, Timing]:
    """Time several functions in turn, one sample each per round, and return a Timing for each name.

    work: name -> function that launches once on CuPy's current stream (see `launcher`, `cublas`). samples: rounds at
    most; seconds: how long all rounds may take together (at least five are made). Raises RunError, LaunchError.
    """
    cupy = presence.need()
    stream = own_stream()
    cupy.cuda.Device().synchronize()
    try:
        with stream:
            samplers = [_Sampler(name, once, stream) for name, once in work.items()]
            for sampler in samplers:
                sampler.warm_up(warm_up / len(samplers))
            begin = time.monotonic()
            for done in range(samples):
                if done >= 5 and time.monotonic() - begin > seconds:
                    break
                for sampler in samplers if done % 2 == 0 else reversed(samplers):
                    sampler.sample()
            clocks = {sampler.name: sampler.clock() for sampler in samplers}
    except failures.cuda_errors() as error:
        raise failures.explain(error, " and ".join(work)) from None
    others = (properties.processes() or 1) - 1
    return {sampler.name: _timing(sampler, clocks[sampler.name], others) for sampler in samplers}


def _timing(sampler: _Sampler, clock: float | None, others: int) -> Timing:
    middle = statistics.median(sampler.times)
    quarters = statistics.quantiles(sampler.times, n=4) if len(sampler.times) > 1 else [middle, middle, middle]
    spread = (quarters[2] - quarters[0]) / middle if middle else 0.0
    return Timing(
        milliseconds=middle,
        spread=spread,
        samples=len(sampler.times),
        clock_mhz=clock,
        device=properties.device().name,
        method=sampler.method,
        noisy=noise(spread, others, sampler.host_limited),
    )


def noise(spread: float, others: int = 0, host_limited: int = 0) -> str:
    """Why a figure should not be trusted, as a clause; "" if nothing speaks against it.

    spread: inter-quartile range over median. others: other processes on the GPU. host_limited: samples in which the
    GPU waited for the host.
    """
    reasons = []
    if spread > NOISY:
        reasons.append(f"samples spread by {spread:.0%}")
    if others > 0 and spread > NOISY / 5:
        reasons.append(f"{others} other program{'s' if others > 1 else ''} on this GPU")
    if host_limited:
        reasons.append(f"{host_limited} samples waited for the host")
    return ", ".join(reasons)
