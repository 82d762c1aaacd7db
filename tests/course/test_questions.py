"""Predictions: committed, kept, and shown beside the truth."""

from __future__ import annotations

import html

import ipywidgets
import pytest

from helpers.course import questions
from helpers.course.evidence import speedup
from helpers.course.exercises import exercise
from helpers.course.questions import Question, commit, committed, exercise_card, hints_taken, judge, question_card, reveal
from helpers.course.store import Store
from helpers.errors import CourseError

NUMBER = Question("naive.number", "How many?", unit="sectors")
CHOICE = Question("naive.choice", "Which?", choices=("fewer", "more"))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "_asked", {NUMBER.id: NUMBER, CHOICE.id: CHOICE})
    return Store(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [("32", 32), (" 0.5 ", 0.5), ("1/8", 0.125), ("2.5e9", 2.5e9), ("1 000", 1000), ("12x", 12), ("50%", 50)],
)
def test_numbers_as_people_write_them(text, value):
    assert NUMBER.parse(text) == value


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text",
    ["", "many", "1/0", None, "1e400", "-1e400", "1e99999999", "1/1e400000000", "nan", "inf", "∞/∞", "1/2/3", "/", "²", "1e400/1e400"],
)
def test_what_is_no_number_is_refused(text):
    with pytest.raises(CourseError, match="Write a number"):
        NUMBER.parse(text)


@pytest.mark.parametrize(
    ("unit", "fewest"), [("sectors", 0), ("wavefronts per load", 0), ("times", 0), ("%", -3), ("per cent", -3), ("", -3)]
)
def test_what_is_counted_is_no_fewer_than_none(unit, fewest):
    question = Question("naive.number", "How many?", unit=unit)
    assert question.parse(f"{fewest}") == fewest and question.parse("-0") == 0
    if fewest == 0:
        with pytest.raises(CourseError, match=f"Write how many {unit}: 0 or more"):
            question.parse("-1/8")


def test_one_is_singular():
    assert [NUMBER.show(value) for value in (1, 4, 0.5)] == ["1 sector", "4 sectors", "0.5 sectors"]
    assert Question("naive.plain", "?").show(3) == "3"


def test_choices_are_held_to():
    assert CHOICE.parse("more") == "more"
    with pytest.raises(CourseError, match="fewer, more"):
        CHOICE.parse(None)


def test_an_answer_outlives_the_session(store, tmp_path):
    commit(NUMBER, "4", store)
    commit(NUMBER, "8", store)
    assert committed(NUMBER.id, Store(tmp_path)) == 8
    assert Store(tmp_path).answers(step=1)[-1].answer == 8
    assert committed(CHOICE.id, store) is None


def test_a_refused_answer_is_not_kept(store):
    with pytest.raises(CourseError):
        commit(NUMBER, "lots", store)
    assert committed(NUMBER.id, store) is None


def test_the_truth_stands_beside_the_answer(store):
    commit(NUMBER, "4", store)
    shown = reveal({NUMBER.id: 32, CHOICE.id: "more"}, store)
    assert "you: 4 sectors   truth: 32 sectors   8 times too small" in str(shown)
    assert "you: –   truth: more   no prediction" in str(shown)
    assert "<b>32 sectors</b>" in shown._repr_html_()
    assert store.answers(question=NUMBER.id)[-1].truth == 32


def test_a_prediction_stands_once_the_truth_was_shown(store):
    commit(NUMBER, "4", store)
    card = question_card(NUMBER, store)
    reveal({NUMBER.id: 32, CHOICE.id: "more"}, store)
    inside(card, ipywidgets.Button)[0].click()
    assert inside(card, ipywidgets.Text)[0].disabled and inside(card, ipywidgets.Button)[0].disabled
    with pytest.raises(CourseError, match="stays as it was"):
        commit(NUMBER, "32", store)
    assert committed(NUMBER.id, store) == 4
    assert commit(CHOICE, "more", store) == "more"  # nothing was predicted, so nothing is lost


def test_a_factor_says_whose_it_is(store):
    source, factor = (found := speedup("coalesced", over="naive", kinds=["recorded"])).source, f"{found.factor:.1f}"
    shown = reveal({NUMBER.id: found}, store)
    assert f"truth: {factor} sectors (the course's kernel, recorded: H200 SXM" in str(shown)
    page = shown._repr_html_()
    assert html.escape(source) in page.replace("&nbsp;", " ") and "4096&nbsp;×&nbsp;4096&nbsp;×&nbsp;4096" in page


def test_showing_the_truth_twice_keeps_one_row(store):
    commit(NUMBER, "4", store)
    for _ in range(3):
        reveal({NUMBER.id: 32}, store)
    assert len(store.answers(question=NUMBER.id)) == 2


def test_the_truth_of_a_question_that_was_not_asked(store):
    with pytest.raises(CourseError, match="Predict"):
        reveal({"naive.other": 1}, store)


@pytest.mark.parametrize(
    ("yours", "truth", "words"),
    [
        (32, 32, "exactly"), (30, 32, "close"), (100, 179, "1.79 times too small"), (4, 32, "8 times too small"),
        (96, 32, "3 times too large"), (0, 32, "too small"), (-1, 32, "too small"), (5, 0, "too large"), (0, 0, "exactly"),
        ("more", "more", "right"), ("fewer", "more", "not so"), (None, 3, "no prediction"),
    ],
)  # fmt: skip
def test_judgements(yours, truth, words):
    assert judge(yours, truth) == words


def inside(widget, kind):
    found = [widget] if isinstance(widget, kind) else []
    return found + [item for child in getattr(widget, "children", ()) for item in inside(child, kind)]


def test_the_card_commits_and_lets_you_change_your_mind(store):
    card = question_card(NUMBER, store)
    (field,), (button,) = inside(card, ipywidgets.Text), inside(card, ipywidgets.Button)
    said = inside(card, ipywidgets.HTML)[-1]
    field.value = "lots"
    button.click()
    assert "Write a number" in said.value and not field.disabled
    field.value = "4"
    button.click()
    assert field.disabled and "4 sectors" in said.value and button.description == "Change"
    button.click()
    field.value = "8"
    button.click()
    assert committed(NUMBER.id, store) == 8


def test_enter_commits(store):
    (field,) = inside(question_card(NUMBER, store), ipywidgets.Text)
    field.value = "4"
    field._handle_custom_msg({"event": "submit"}, [])  # what the page sends
    assert field.disabled and committed(NUMBER.id, store) == 4


def test_a_solved_exercise_says_so_at_once(store, tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))  # where nothing is solved
    (task, *_) = inside(exercise_card(exercise("intensity")), ipywidgets.HTML)
    assert "solved" not in task.value
    exercise("intensity").check(lambda m, n, k: 2 * m * n * k / (4 * (m * k + k * n + m * n)), store)
    assert "✓ solved" in task.value


def test_a_new_card_shows_the_old_answer(store):
    commit(CHOICE, "more", store)
    card = question_card(CHOICE, store)
    assert inside(card, ipywidgets.RadioButtons)[0].value == "more"
    assert inside(card, ipywidgets.RadioButtons)[0].disabled
    assert inside(question_card(NUMBER, store), ipywidgets.Text)[0].value == ""


def test_hints_come_one_at_a_time_and_the_solution_last_and_are_remembered(store, monkeypatch):
    monkeypatch.setattr(questions, "own", lambda: store)
    item = exercise("two_columns")
    card = exercise_card(item)
    hint, solution = inside(card, ipywidgets.Button)
    shown = inside(card, ipywidgets.HTML)[-1]
    for given in range(len(item.hints)):
        assert solution.disabled
        assert shown.value.count("<li>") == given
        hint.click()
    assert hint.disabled and not solution.disabled
    assert "col0 + BN" not in shown.value
    solution.click()
    assert "col0 + BN" in shown.value
    again = exercise_card(item)
    assert inside(again, ipywidgets.HTML)[-1].value == shown.value
    assert all(button.disabled for button in inside(again, ipywidgets.Button))
    assert hints_taken("two_columns", store) == len(item.hints) + 1


def test_a_question_belongs_to_a_step():
    assert NUMBER.step == 1
    with pytest.raises(KeyError):
        Question("nowhere.x", "?").step  # noqa: B018 - the property raises


def test_a_question_is_asked_in_the_readers_language_and_kept_under_its_own_name(store, monkeypatch):
    question = Question("naive.sectors_b", "And its load of <b>B</b>?", unit="sectors per request")
    monkeypatch.setenv("GEMM_LADDER_LANGUAGE", "zh")
    assert question.said == "它对 <b>B</b> 的加载呢？" and question.said in question_card(question, store).children[0].value
    assert NUMBER.said == NUMBER.text, "what is not translated stays English"
    monkeypatch.setenv("GEMM_LADDER_LANGUAGE", "ko")
    assert question.said == question.text
    monkeypatch.setenv("GEMM_LADDER_LANGUAGE", "zh-tw")
    with pytest.warns(UserWarning, match="GEMM_LADDER_LANGUAGE: The course is not in 'zh-tw'. There are: en, zh. It stays English."):
        assert question.said == question.text


@pytest.mark.parametrize(
    "given",
    [
        {"unit": 3},
        {"choices": 3},
        {"choices": "abc"},
        {"choices": [1, 2]},
        {"choices": ["a"]},
        {"choices": ["a", "a"]},
        {"id": None},
        {"text": 3},
    ],
    ids=str,
)
def test_a_question_is_texts(given):
    with pytest.raises(CourseError, match="ask"):
        questions.ask(**{"id": "naive.p", "text": "How many?", **given})


@pytest.mark.parametrize("truth", [None, float("nan"), float("inf"), 10**400, [1, 2], 1j, {}], ids=lambda truth: str(truth)[:9])
def test_a_truth_is_a_number_or_a_text(truth, store, monkeypatch):
    monkeypatch.setattr(questions, "_asked", {"naive.p": Question("naive.p", "?")})
    with pytest.raises(CourseError, match=r"truth of naive\.p is a number"):
        questions.reveal({"naive.p": truth}, store)
