"""The pictures. Each is a pure function `f(run, ..., ax=None) -> Axes`, one file each; `canvas.py` has what they share.

Adding a picture is adding a file: everything in this folder that is marked with `@picture` is found by itself.
"""

from __future__ import annotations

import importlib
import pkgutil

from helpers.interrupts import delayed

with delayed():  # matplotlib
    from .canvas import PICTURES, to_html, to_png, to_svg

    for _module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{_module.name}")
# After all imports, because importing a submodule of the same name would put the module here.
for _name, _picture in PICTURES.items():
    globals()[_name] = _picture.draw

__all__ = ["PICTURES", "to_html", "to_png", "to_svg", *PICTURES]
