"""What a sanitizer would say, collected while a kernel runs.

The same thing is said once, however many threads do it: a finding is told apart by its kind and its lines, carries the
first thread seen as an example, and counts the rest.
"""

from __future__ import annotations

from dataclasses import replace

from helpers.errors import Finding, RunError

MAX_FINDINGS = 100

ADVICE = {
    "out-of-bounds": "Check the index against the matrix's size before the access, or fix the address.",
    "misaligned": "A vector access of n bytes needs an address that is a multiple of n: check the pointer and the leading dimension.",
    "uninitialized": "Write the tile before reading it, and put __syncthreads() between.",
    "race": "Put __syncthreads() between the two accesses.",
    "divergent-barrier": "Every thread of the block must reach the same __syncthreads(): move it out of the if, or return later.",
    "missing-wait": "Wait for the copy (cp.async.wait_group or the pipeline's consumer_wait) and then call __syncthreads().",
    "missing-fence": "Put wgmma.fence between writing registers and the wgmma that uses them, and fence.proxy.async between "
    "writing shared memory and the wgmma or bulk copy that reads it.",
    "endless": "Check that the loop's condition becomes false for every thread.",
}


class Findings:
    """A list without repetitions."""

    def __init__(self, wanted: bool = True):
        self.wanted = wanted
        self.found: dict[tuple, Finding] = {}

    def add(
        self,
        kind: str,
        line: int | None,
        message: str,
        *,
        other_line=None,
        block=None,
        thread=None,
        advice=None,
        count=1,
    ) -> Finding:
        """Note a finding and return it."""
        finding = Finding(kind, line, message, other_line, block, thread, ADVICE.get(kind, "") if advice is None else advice, count)
        key = (kind, line, other_line)
        known = self.found.get(key)
        if known is not None:
            self.found[key] = replace(known, count=known.count + count)
        elif len(self.found) < MAX_FINDINGS:
            self.found[key] = finding
        return finding

    def merge(self, other: Findings) -> None:
        """Take in what another part of the launch found."""
        for key, finding in other.found.items():
            known = self.found.get(key)
            if known is not None:
                self.found[key] = replace(known, count=known.count + finding.count)
            elif len(self.found) < MAX_FINDINGS:
                self.found[key] = finding

    def list(self) -> list[Finding]:
        """The findings in order of discovery, if they were asked for."""
        return list(self.found.values()) if self.wanted else []

    def stop(self, message: str, line: int | None):
        """End the run: it cannot go on."""
        raise RunError(message, line, list(self.found.values()))


def at(line: int | None) -> str:
    """' at line 12' or ''."""
    return "" if line is None else f" at line {line}"
