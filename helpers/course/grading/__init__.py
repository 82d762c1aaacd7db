"""Grading: exercises handed in as notebooks are judged by the source text of their answers, and by nothing else in them.

    nbgrader ── collecting ──> answers ──> apart ──> marks        what a class hands in, to points and sentences
               (nbgrader's     (which text  (a process with
                own steps       is the       limits: the check
                replaced)       answer)      of the exercise)

`course_directory.py` writes what is handed out, `collecting.py` takes the place of the step of nbgrader that would run a
submission, `timestamps.py` guards the times that submissions say of themselves, `answers.py` finds an answer's text and says what
no answer may do, `apart.py` judges it in a process of its own, `formulas.py` evaluates answers in Python, which `cell_python.py`
reads, without running them, and `marks.py` has the rules for points.
"""
