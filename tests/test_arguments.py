"""What is a whole number, and what a list, among all that a reader may give, and what a call that is wrong is told."""

import inspect
from collections.abc import Callable

import numpy as np
import pytest

import helpers
from helpers.arguments import explained, is_whole, listed
from helpers.course.lesson import LessonKernel
from helpers.errors import CourseError, LaunchError


@pytest.mark.parametrize("value", [0, -3, 10**30, np.int64(4), np.uint8(4)], ids=repr)
def test_whole_numbers(value):
    assert is_whole(value)


@pytest.mark.parametrize("value", [True, np.True_, 1.0, np.float32(1), "1", None, [1], np.array(1)], ids=repr)
def test_what_is_no_whole_number(value):
    assert not is_whole(value)


@pytest.mark.parametrize(
    "value, held",
    [([1, 2], (1, 2)), (range(2), (0, 1)), (np.array([3]), (3,)), (iter("ab"), ("a", "b")), ((), ())],
    ids=["a list", "a range", "an array", "an iterator", "nothing"],
)
def test_what_a_list_holds(value, held):
    assert listed(value) == held


@pytest.mark.parametrize("value", [3, None, "ab", b"ab", {1: 2}, np.array(3)], ids=repr)
def test_what_is_no_list(value):
    assert listed(value) is None


CALLS = {
    "naive.gemm()": "gemm was not given m. Write: gemm(m). All that it takes: m, n, k, on",
    "naive.gemm(8, alfa=2)": "gemm has no option alfa. It has: alpha, beta, ",
    "naive.gemm(8, m=8)": "gemm was given m twice",
    "naive.check(sead=1)": "check has no option sead. It has: on, seed.",
    "naive.show(size=64, blok=0)": "show has no option blok. It has: size, picture, pictures.",
    "naive.show(64, pictures=3)": "pictures=3: give a list of names",
    "naive.show('tiles')": "size='tiles': a size is a number, such as size=128. A picture is named so: show(picture='tiles').",
    "naive.show(64, picture=[1])": "There is no picture [1] of a run. There are: ",
    "naive.profile(64, None, 1)": "profile was given 3 things without a name. It takes at most 2: size, gpu_name.",
    "naive.climb(gpus='T4')": "climb has no option gpus. It has: size, gpu_name, gpu.",
    "naive.profile(64, 'H200 SXM', gpu='T4')": "gpu_name='H200 SXM' and gpu='T4' are two names for one thing",
    "naive.history(1)": "history was given 1 thing without a name. It takes none: history().",
    "naive.history(number=1)": "history has no option number. It has none: history().",
    "naive.restore(version=1)": "restore has no option version. It has: number.",
    "naive.launch()": "launch was not given grid, block, args. Write: launch(grid, block, args). All that it takes: grid, ",
    "exercise()": "exercise was not given slug. Write: exercise(slug).",
    "exercise('intensity').check()": "check was not given answer. Write: check(answer).",
    "quiz()": "quiz was not given name. Write: quiz(name).",
    "ask('naive.x')": "ask was not given text. Write: ask(id, text). All that it takes: id, text, unit, choices.",
    "reveal()": "reveal was not given truths.",
    "variants(naive)": "variants was not given settings.",
    "compare_counts()": "compare_counts was not given runs, wanted.",
    "measures.measure()": "measure was not given ",
    "ladder.rungs(size=4096)": "rungs has no option size. It has: m, n, k, ",
    "evidence.recorded(devise='T4')": "recorded has no option devise. It has: step, device.",
    "widgets.ladder(to=3)": "ladder has no option to. It has: size, ",
    "widgets.coalescing()": "coalescing was not given what. Write: coalescing(what).",
    "widgets.coalescing(run, blok=0)": "coalescing has no option blok. It has: site, line, ",
    "widgets.compare(run, run, 'owners', blok=0)": "owners has no option blok. It has: ",
    "widgets.explore()": "explore was not given run.",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_wrong_is_told_what_there_is(call):
    names = {name: getattr(helpers, name) for name in helpers.__all__ if name != "gpu"}
    naive = helpers.reference("naive")
    with pytest.raises(CourseError) as error:
        eval(call, names | {"naive": naive, "run": naive.gemm(8, on="cpu", trace=True)})
    assert error.value.message.startswith(CALLS[call])


def _of_lessons() -> dict[str, Callable[..., object]]:
    """The functions of the course by name, and what a lesson's kernel can do."""
    functions = {name: getattr(helpers, name) for name in helpers.__all__ if name not in ("load_ipython_extension", "gpu")}
    verbs = {f"naive.{name}": getattr(LessonKernel, name) for name in vars(LessonKernel) if not name.startswith("_")}
    return {name: made for name, made in (functions | verbs).items() if inspect.isfunction(made)}


@pytest.mark.parametrize("name", _of_lessons())
def test_every_call_of_a_lesson_names_its_options(name):
    """A new one needs the mark `explained`."""
    function = _of_lessons()[name]
    required = [None for one in inspect.signature(function).parameters.values() if one.default is one.empty and one.kind in (0, 1)]
    with pytest.raises(LaunchError, match=f"{function.__name__} has no option no_such_option"):
        function(*required, no_such_option=0)


def test_what_a_function_raises_itself_is_not_touched():
    @explained
    def halved(number, by=2):
        """Half of it."""
        return number / by

    assert halved(4) == halved(number=4) == 2 and halved.__doc__ == "Half of it."
    with pytest.raises(TypeError):
        halved("4")
    with pytest.raises(ZeroDivisionError):
        halved(4, by=0)
