"""The quizzes: what they ask, and what becomes of an answer."""

import ipywidgets
import pytest

from helpers.course.notebook_file import read, source
from helpers.course.questions import commit, question_card
from helpers.course.quizzes import PREFIX, _choice, _part, part, parts, quiz, score
from helpers.course.standing import QUIZZED, standing
from helpers.course.steps import STEPS, get
from helpers.course.store import Store
from helpers.errors import CourseError
from tests.course.test_questions import inside

QUESTIONS = [question for one in parts() for question in one.questions]


def test_the_parts_are_all_lessons_and_each_ends_with_its_quiz():
    assert [number for one in parts() for number in one.lessons] == [step.number for step in STEPS if not step.bench]
    for one in parts():
        assert len(one.questions) == 5
        cells = [source(cell) for cell in read(get(one.last).notebook_path)["cells"]]
        assert any(f'quiz("{one.name}")' in text for text in cells) and any(text.startswith("## To take away") for text in cells)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_every_wrong_choice_is_explained_and_no_answer_is_on_the_page(question):
    truth = question.truth()
    assert question.because
    if question.choices:
        assert truth in question.choices and set(question.wrong) == set(question.choices) - {truth}
        lesson = " ".join(" ".join(source(cell) for cell in read(get(question.lesson).notebook_path)["cells"]).split())
        assert str(truth) not in lesson
    else:
        assert truth > 0 and question.unit


def test_an_answer_is_told_at_once_and_stands(tmp_path):
    store = Store(tmp_path)
    question = part("registers").questions[3]
    wrong = next(iter(question.wrong))
    card = question_card(question, store)
    inside(card, ipywidgets.RadioButtons)[0].value = wrong
    inside(card, ipywidgets.Button)[0].click()
    said = inside(card, ipywidgets.HTML)[-1].value
    assert question.truth() in said and question.because in said and question.wrong[wrong] in said
    assert inside(card, ipywidgets.Button)[0].disabled and inside(card, ipywidgets.RadioButtons)[0].disabled
    with pytest.raises(CourseError, match="stays as it was"):
        commit(question, question.truth(), store)
    assert question.truth() in inside(question_card(question, Store(tmp_path)), ipywidgets.HTML)[-1].value


def test_right_answers_count(tmp_path):
    store = Store(tmp_path)
    number, choice = part("registers").questions[0], part("registers").questions[3]
    commit(number, "3/8", store)
    commit(choice, next(iter(choice.wrong)), store)
    found = score("registers", store)
    assert (found.right, found.answered, found.of) == (1, 2, 5)
    assert standing(store).points == QUIZZED and not standing(store).predictions
    assert f"2 of {5 * len(parts())} questions answered, 1 of them right" in str(standing(store))
    store.reset(get("vectorized").number)
    assert score(store=store).answered == 0


def test_questions_may_be_called_as_the_quiz_s_own_fields_are():
    row = _choice("Which?", "this", "It is.", {"that": "No."})
    made = _part("x", "X", "naive", "coalesced", first=row, last=row, name=row, title=row)
    assert [question.id for question in made.questions] == [f"{PREFIX}x.{short}" for short in ("first", "last", "name", "title")]


def test_an_unknown_part_is_a_sentence():
    assert all(question.id.startswith(PREFIX) for question in QUESTIONS)
    with pytest.raises(CourseError, match="memory, registers"):
        quiz("poetry")
