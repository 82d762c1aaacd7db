"""Textures and surfaces: refused by name, because the machine has arrays alone."""

from __future__ import annotations

from .base import instruction


def _refused(op):
    op.fail("reads or writes a texture or surface. The machine has none: pass an array and index it")


for _name in ("tex", "tld4", "txq", "suld", "sust", "sured", "suq"):
    instruction(_name)(_refused)
