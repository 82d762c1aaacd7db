"""What all pictures share: style, alternative text, export, reasons instead of failures."""

import base64
import itertools
import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from helpers import views
from helpers.errors import CourseError
from helpers.views import canvas
from helpers.views.canvas import PICTURES, Choice, CourseAxes, Span, heading, in_words, new_axes, settle
from tests.views.view_builders import one_load

LOAD = one_load(4 * np.arange(32))


def test_every_file_of_the_folder_that_marks_a_picture_is_found():
    assert {"coalescing", "tiles", "listing", "ladder", "roofline"} <= set(PICTURES)
    for name, picture in PICTURES.items():
        assert getattr(views, name) is picture.draw and picture.draw.__doc__


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("thread_tile_1d", "thread tile 1D"), ("tma_wgmma", "TMA wgmma"), ("fp32_on_tensor_cores", "FP32 on tensor cores"), ("fp8", "FP8"),
        ("shared_tile", "shared tile"), ("V05 transposed, 2D", "V05 transposed, 2D"), ("vectorized", "vectorised"),
        ("warp_specialized", "warp specialised"),
    ],
)  # fmt: skip
def test_a_name_of_code_is_written_as_lessons_write_it(name, said):
    assert in_words(name) == said


def test_a_picture_without_a_title_is_refused():
    with pytest.raises(TypeError, match="before `def my_picture"):

        @canvas.picture
        def my_picture(run, *, ax):
            """Nothing."""

    assert "my_picture" not in PICTURES


def test_a_picture_shows_itself_with_alternative_text():
    bundle = views.coalescing(LOAD)._repr_mimebundle_()
    alt, data = re.search(r'<img alt="([^"]+)".*base64,([^"]+)"', bundle["text/html"]).groups()
    assert "32 lanes touch 4 sectors" in alt and bundle["text/plain"].startswith("4 sectors")
    assert base64.b64decode(data).startswith(b"\x89PNG")
    assert 'data-jp-theme-light="false"' in bundle["text/html"]  # follows the dark theme


def test_exports():
    ax = views.coalescing(LOAD)
    assert views.to_png(ax).startswith(b"\x89PNG") and len(views.to_png(ax, dpi=50)) < len(views.to_png(ax, dpi=200))
    tree = ElementTree.fromstring(views.to_svg(ax))
    assert "4 sectors" in "".join(tree.itertext())


def test_the_same_run_gives_the_same_picture():
    assert views.to_png(views.coalescing(LOAD)) == views.to_png(views.coalescing(LOAD))
    assert views.to_svg(views.coalescing(LOAD)) == views.to_svg(views.coalescing(LOAD))


def test_an_axes_of_the_reader_s_own_is_drawn_into():
    mine = Figure().add_subplot()
    assert views.coalescing(LOAD, ax=mine) is mine and mine.texts


def test_the_reader_s_own_settings_neither_show_nor_change():
    with matplotlib.rc_context({"font.size": 40, "axes.facecolor": "red"}):
        png = views.to_png(views.coalescing(LOAD))
        assert matplotlib.rcParams["font.size"] == 40
    assert png == views.to_png(views.coalescing(LOAD))


@pytest.mark.parametrize("name", sorted(name for name, picture in PICTURES.items() if picture.of == "run"))
def test_a_kernel_that_did_not_compile_is_said_to_have_not(name, said):
    class NotCompiled:
        def __getattr__(self, attribute):
            raise CourseError("mine did not compile, so there is nothing to run yet.")

    ax = PICTURES[name].draw(NotCompiled())
    assert isinstance(ax, CourseAxes) and "did not compile" in said(ax) and "did not compile" in ax.alt


def test_settling_keeps_what_is_possible():
    controls = (Choice("site", "access", (("a", 1), ("b", 2)), 2), Span("step", "step", 0, 5))
    assert settle(controls, {}) == {"site": 2, "step": 0}
    assert settle(controls, {"site": 1, "step": 99}) == {"site": 1, "step": 5}
    assert settle(controls, {"site": 7, "step": -3}) == {"site": 2, "step": 0}


@pytest.mark.parametrize("code, lines", [("short", 1), ("x" * 70, 1), ("word " * 26, 2), ("word " * 60, 2)])
def test_headings_stay_inside_the_figure(code, lines):
    ax = new_axes((10, 5), (1.3, 0.1, 0.2, 1.35))
    heading(ax, "A title", code=code, detail="where and how much")
    for note in ax.texts:
        box = note.get_window_extent()
        assert box.x1 <= ax.figure.bbox.width and box.y1 <= ax.figure.bbox.height
    texts = [note.get_text() for note in ax.texts]
    assert len(texts[1].split("\n")) == lines and texts[1].endswith("…") == (len(code) > 200)
    bottoms = [note.get_window_extent() for note in ax.texts]
    assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(bottoms))


def test_text_is_told_from_what_it_stands_on():
    def luminance(colour):
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in canvas.rgb(colour)]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    def contrast(one, other):
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    assert [colour for colour in (*canvas.AS_TEXT.values(), canvas.INK, canvas.QUIET) if contrast(colour, canvas.PAPER) < 4.5] == []
    fills = (*canvas.AS_TEXT, canvas.SKY, canvas.YELLOW)
    assert [fill for fill in fills if contrast(canvas.text_on(fill), fill) < 3.8] == []
