"""The glossary: its data, and looking a word up."""

import pytest

from helpers.course.glossary import glossary, terms
from helpers.errors import CourseError
from helpers.sim.counting import names


def test_terms_are_plain_and_told_once():
    spellings = [spelling.lower() for term in terms() for spelling in term.spellings]
    assert len(spellings) == len(set(spellings)) and len(terms()) >= 50
    for term in terms():
        assert term.means.endswith(".") and not set(term.means) & set('"|$`[]<>*_\\'), f"{term.name}: this cannot be a title"
        assert term.means.count(". ") <= 1, f"{term.name} takes more than two sentences"


def test_counters_are_spelt_as_the_machine_spells_them():
    known = {*names.MEANINGS, *(names.warp_state(state) for state in ("long scoreboard", "short scoreboard"))}
    named = {word for term in terms() for word in term.nvidia.split() if word.endswith((".sum", ".ratio")) or "_sum" in word}
    assert named and named <= known


@pytest.mark.parametrize("word", ["wavefront", "Wavefronts", "bank conflicts", "FFMA", "multiply-add"])
def test_a_word_is_found_in_any_spelling(word):
    (term,) = glossary(word).terms
    assert term.means in str(glossary(word)) and term.step.name in glossary(word)._repr_html_()


@pytest.mark.parametrize(("word", "near"), [("wavefrnt", "wavefront"), ("qqq", "all words"), (3, "all words")])
def test_a_word_that_is_not_there_is_a_sentence(word, near):
    with pytest.raises(CourseError, match=near):
        glossary(word)
