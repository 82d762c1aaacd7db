"""The tests mirror helpers/: a module's tests carry its name. Here: where things lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "helpers" / "data"


def must_be_as_synced(path: Path, wanted: str) -> None:
    """Raises AssertionError, in one sentence, where the file is not what `course sync` writes. Its thousands of lines say less."""
    __tracebackhide__ = True
    text = path.read_text(encoding="utf-8")
    if text != wanted:
        lines, others = text.split("\n"), wanted.split("\n")
        at = next((i for i, pair in enumerate(zip(lines, others, strict=False)) if pair[0] != pair[1]), min(len(lines), len(others)))
        raise AssertionError(f"{path.name} is not as `course sync` writes it, from line {at + 1} on: run `uv run course sync`")
