"""What a moved slider costs, in counted work: nothing that was worked out before is worked out again."""

import io

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from helpers import views
from helpers.front import widgets
from helpers.views import canvas
from helpers.views.canvas import PICTURES, stamp
from helpers.views.places import ANSWERS
from tests.views.view_builders import gemm_run, one_load

LANES = np.arange(32)


def pixels(ax):
    return np.asarray(Image.open(io.BytesIO(views.to_png(ax)))).astype(int)


@pytest.mark.parametrize("name", ["coalescing", "banks", "layout"])
def test_numbers_are_laid_out_once(name):
    draw = PICTURES[name].draw
    run = one_load(4 * LANES, space="global" if name == "coalescing" else "shared")
    views.to_png(draw(run))
    before = canvas._pixels.cache_info()
    views.to_png(draw(run))
    after = canvas._pixels.cache_info()
    assert after.misses == before.misses and after.hits - before.hits >= 32


@pytest.mark.parametrize("name", ["coalescing", "tiles", "owners", "timeline"])
def test_a_slider_does_not_search_the_trace_again(name, monkeypatch):
    run = gemm_run("shared")
    panel = widgets.panel(name, run, "counted")
    moving = [field for field in panel._fields.values() if hasattr(field, "max") and field.max > field.min]
    for field in moving:  # there and back: everything was seen once
        field.value, field.value = field.max, field.min
    known = set(ANSWERS[run.trace])
    for field in moving:
        field.value, field.value = field.max, field.min
    assert set(ANSWERS[run.trace]) == known and len(known) > 0


def middle(image) -> np.ndarray:
    """Row and column of the centre of the ink."""
    ink = (255 - image).sum(axis=2)
    return np.array([ink.sum(axis=1) @ np.arange(ink.shape[0]), ink.sum(axis=0) @ np.arange(ink.shape[1])]) / ink.sum()


@pytest.mark.parametrize("options", [
    {"ha": "center", "va": "center_baseline"}, {"ha": "right", "va": "top", "down": 6}, {"ha": "left", "va": "bottom", "alpha": 0.5},
    {"ha": "center", "va": "center", "linespacing": 1.25, "weight": "bold", "color": "#D55E00"},
])  # fmt: skip
def test_a_stamp_looks_like_the_text_it_stands_for(options):
    def drawn(as_stamp):
        ax = Figure(figsize=(3, 2), dpi=128).add_subplot()
        FigureCanvasAgg(ax.figure)
        ax.set_axis_off()
        made = stamp(ax, 0.5, 0.5, "31\nA[1, 8]" if "linespacing" in options else "17", **{"fontsize": 11, **options})
        if not as_stamp:
            made.__class__ = canvas.Text
        return pixels(ax)

    stamped, plain = drawn(True), drawn(False)
    assert (plain < 128).any()
    assert np.abs(middle(stamped) - middle(plain)).max() <= 1, "the same place, to a pixel"
    assert abs((255 - stamped).sum() / (255 - plain).sum() - 1) < 0.05, "and as much ink"


def test_stamps_are_texts_where_the_picture_is_not_made_of_pixels():
    svg = views.to_svg(PICTURES["banks"].draw(one_load(128 * LANES, space="shared", shape=(32, 32))))
    assert ">31</text>" in svg


def test_the_png_is_what_was_drawn():
    ax = PICTURES["coalescing"].draw(one_load(4 * LANES))
    image = pixels(ax)
    np.testing.assert_array_equal(image, np.asarray(ax.figure.canvas.buffer_rgba())[..., :3])
    assert image.shape[1:] == (1280, 3)
