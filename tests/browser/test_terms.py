"""Terms of the glossary in a lesson: their tooltips, and the way to their page."""

import pytest

from helpers.course.glossary import PAGE, glossary


@pytest.mark.slow
def test_a_term_says_what_it_means_and_leads_to_its_page(open_notebook):
    notebook = open_notebook("06_bank_conflicts.ipynb")
    (term,) = glossary("wavefront").terms
    link = notebook.page.locator(f".jp-RenderedMarkdown a[title='{term.means}']")
    link.scroll_into_view_if_needed()
    assert link.inner_text() == f"{term.name}s"
    notebook.screenshot("term")
    for _ in range(2):  # a notebook that opens is shown from its top, whatever the link says; one that is open, at the word
        notebook.command("docmanager:open", path=notebook.name)
        link.click()
        notebook.page.wait_for_function("name => window.jupyterapp.shell.currentWidget?.context?.path === name", arg=PAGE)
        heading = notebook.page.locator(f".jp-RenderedMarkdown h3[data-jupyter-id='{term.anchor}']")
        heading.wait_for()
    notebook.page.wait_for_function(
        "heading => { const place = heading.getBoundingClientRect(); return place.top >= 0 && place.bottom <= window.innerHeight; }",
        arg=heading.element_handle(),
    )
    notebook.screenshot("term-page")
