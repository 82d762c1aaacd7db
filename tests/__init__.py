"""The tests mirror helpers/: a module's tests carry its name. Here: where things lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "helpers" / "data"
