"""The cheat sheet, printed."""

import re

from helpers.front import cheatsheet


def test_the_cheat_sheet_fits_one_page(chromium):
    page = chromium.new_page()
    page.set_content(cheatsheet.page())
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
