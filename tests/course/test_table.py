"""The one table: numbers stand right, words left, in text and in HTML."""

import html

import pytest

from helpers.course.table import Cell, Table, Tabular

TABLE = Table(
    ("step", "TFLOPS"), [("naive", "0.9"), (Cell("*best*", "<b>best</b>"), "12.25")], "on <this> device", left=(0,), below=("Done.",)
)


def test_text_is_aligned():
    assert str(TABLE).split("\n") == ["on <this> device", "step    TFLOPS", "naive      0.9", "*best*   12.25", "Done."]


def test_html_has_the_same_cells_and_escapes_text():
    page = TABLE._repr_html_()
    assert "<caption>on &lt;this&gt; device</caption>" in page and "<div>Done.</div>" in page
    assert "<td class='left'><b>best</b></td><td>12.25</td>" in page and "*best*" not in page
    assert page.count("<tr>") == 3 and page.count("scope='col'") == 2


def test_a_long_text_among_numbers_takes_several_lines():
    long = "4096 × 4096 × 4096, FP8 E4M3 to BF16, factors for 1 × 128 of A"
    page = Table(["what", "value", "meaning"], [["size", long, "a"], ["count", "12", long]], left=(0, 2))._repr_html_()
    assert f"<td class='long'>{html.escape(long)}</td>" in page and f"<td class='left'>{html.escape(long)}</td>" in page
    assert page.count("class='long'") == 1 and ".long{white-space:normal" in page


@pytest.mark.parametrize(("header", "rows", "tall"), [(("n",), 13, True), (("n",), 12, False), ((), 40, False)])
def test_a_tall_table_scrolls_below_its_header_and_by_keys(header, rows, tall):
    shown = Table(header, [[str(row)] for row in range(rows)], below=("the end",))._repr_html_()
    assert ("class='ladder-table tall' tabindex='0' role='region'" in shown) == tall
    assert shown.index("</table>") < shown.index("</div>") < shown.index("the end")


def test_a_table_without_titles():
    assert str(Table((), [("a", "1"), ("bb", "22")])) == " a   1\nbb  22"
    assert "<th " not in Table((), [("a", "1")])._repr_html_()


def test_what_is_tabular_is_shown_as_its_table():
    class Thing(Tabular):
        def table(self):
            return TABLE

    assert str(Thing()) == repr(Thing()) == str(TABLE) and Thing()._repr_html_() == TABLE._repr_html_()


def test_code_in_what_stands_around_a_table_is_code():
    shown = Table(("a",), [["1"]], "of `best`", below=("`.milliseconds` has all.",))
    assert "of <code>best</code>" in shown._repr_html_() and "<code>.milliseconds</code> has all." in shown._repr_html_()
    assert "`" not in shown._repr_html_() and "`.milliseconds`" in str(shown)
