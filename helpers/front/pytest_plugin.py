"""A pytest fixture for CUDA kernels: `cuda_kernel` compiles a source and runs it in the SIMT machine, so that no GPU is needed.

pytest finds it where the package is installed (entry point pytest11); helpers/guides/library.md describes it. What only a test that
uses the fixture needs is imported then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest


class KernelUnderTest:
    """A compiled kernel whose findings fail the test. kernel: `helpers.Kernel`, with everything it can do. name: of its source."""

    def __init__(self, kernel: Any, name: str):
        self.kernel, self.name = kernel, name

    def launch(
        self, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], shared: int = 0,
        *, on: str | None = "cpu", findings: str | Collection[str] = (), **options: Any,
    ) -> Any:  # fmt: skip
        """Run it and return the `helpers.Run`: `.counters`, `.by_line`, `.findings`. Arrays in `args` are changed in place.

        on: "cpu", the SIMT machine; "gpu"; None for a GPU where there is one. findings: the kinds of finding that the test expects, such as
        "race", or one of them. Any other finding fails the test, and so does one of these that does not come, or a kind that there is
        not. options: further ones of `Kernel.launch`.
        """
        __tracebackhide__ = True
        from helpers.errors import CourseError, RunError
        from helpers.sim.checks.observer import finding_kinds

        expected = {findings} if isinstance(findings, str) else set(findings)
        if unknown := sorted(expected - set(finding_kinds())):
            known = ", ".join(sorted(finding_kinds()))
            pytest.fail(f"{self.name}: {', '.join(unknown)} is no kind of finding. There are: {known}.", pytrace=False)
        run, why = None, ""
        try:
            run = self.kernel.launch(grid, block, args, shared, on, **options)
        except RunError as error:
            why = self._told(error.findings) or self._at(error.line, error.message)
        except CourseError as error:
            why = self._at(error.line, error.message)
        if run is None:
            pytest.fail(why, pytrace=False)
        found = {finding.kind for finding in run.findings}
        if wrong := [finding for finding in run.findings if finding.kind not in expected]:
            pytest.fail(self._told(wrong), pytrace=False)
        if missing := sorted(expected - found):
            pytest.fail(f"{self.name}: expected and not found: {', '.join(missing)}", pytrace=False)
        return run

    def _told(self, findings: Iterable[Any]) -> str:
        return "\n".join(
            self._at(one.line, f"{one.kind}: {one.message} {one.advice}".rstrip(), one.other_line, *one.calls, *one.other_calls)
            for one in findings
        )

    def _at(self, line: int | None, message: str, *others: int | None) -> str:
        """A message with its place, as editors read it, and the lines of source that it is about, calls of helpers included."""
        lines = self.kernel.source.split("\n")
        places = dict.fromkeys(number for number in (line, *others) if number and number <= len(lines))
        shown = "".join(f"\n{number:>5} | {lines[number - 1]}" for number in places)
        return f"{self.name}:{line}: {message}{shown}" if line else f"{self.name}: {message}"


@pytest.fixture
def cuda_kernel() -> Callable[..., KernelUnderTest]:
    """Compile a kernel: `cuda_kernel(source)`, the text or the path of a .cu file.

    entry, arch, options: as those of `helpers.compile`. A source that does not compile fails the test with the compiler's messages, and a
    file that cannot be read with a sentence.
    """

    def compiled(source: str | Path, entry: str | None = None, arch: str = "sm_90", options: Sequence[str] = ()) -> KernelUnderTest:
        __tracebackhide__ = True
        import helpers

        name = str(source) if isinstance(source, Path) else "kernel"
        try:
            text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
            return KernelUnderTest(helpers.compile(text, entry, arch, options), name)
        except OSError as error:
            why = f"it cannot be read ({error.strerror}; the path is taken from {Path.cwd()})."
        except UnicodeDecodeError as error:
            why = f"it is no UTF-8 text (byte {error.start}). Save it as UTF-8."
        except helpers.CourseError as error:
            why = error.message
        pytest.fail(f"{name}: {why}", pytrace=False)

    return compiled
