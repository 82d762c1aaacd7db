"""The `course` command: a subcommand for each thing to do. Parses arguments and calls one function each."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from helpers import processors
from helpers.errors import CourseError, plural

ROOT = Path(__file__).resolve().parents[2]

# These hand what they do not know to the program behind them.
PASS_ON = {"lab": "jupyter lab", "test": "pytest", "record": "the recorder"}


def lab(args: argparse.Namespace) -> int:
    from .lab import start

    return start(args.rest, args.shipped, args.hub, args.language)


def progress(args: argparse.Namespace) -> int:
    """Show where the reader stands, after whatever else was asked for. Returns 1 for a reset that was not confirmed."""
    from helpers.course import store, transfer
    from helpers.course.standing import standing

    if args.reset is not None and args.restore:
        raise CourseError("--reset and --restore contradict each other: give one of them. Nothing was changed.")
    if args.yes and args.reset is None:
        raise CourseError("--yes says that a reset is not to ask first, and no --reset STEP is there. Nothing was changed.")
    for name, path in (("export", args.export), ("import", args.load)):
        if path == Path():
            raise CourseError(f"Which file? --{name} takes its path. Nothing was changed.")
    own = store.own()
    own.answers()  # looks whether the file can be used at all
    if own.problem and (args.load or args.reset is not None or args.restore):
        raise CourseError(f"{own.path} can be read and not be changed, so nothing was done.")
    if args.export:
        print(f"Saved in {args.export}: {plural(transfer.export(own, args.export), 'row')}.")
    done = []
    if args.load:
        loaded = transfer.load(own, args.load)
        done.append(f"Added from {args.load}: {plural(loaded.added, 'row')}; what you had already came once.")
        if loaded.set_aside:
            done.append(
                f"Set aside here by a reset, and still so: {plural(loaded.set_aside, 'row')} of the file. `course progress --restore` "
                "takes the last reset back."
            )
    if args.reset is not None:
        if not (reset := _reset(own, args.reset, args.yes)):
            print("Nothing was reset.")
            return 1
        done.append(reset)
    if args.restore:
        back = own.restore()
        done.append(f"Back again: {plural(back, 'row')}." if back else "There is no reset to take back: nothing has changed.")
    if own.problem and done:  # a full disk shows when something is written
        raise CourseError("Nothing was saved, and your progress is as it was.")
    print(*done, standing(own), sep="\n")
    return 0


def _reset(own, which: str, confirmed: bool) -> str:
    """Archive the climbs and answers of one step, or of all, once the reader has said yes: what was done, "" without."""
    from helpers.course.steps import get

    step = None if which == "all" else get(which)
    what = step.name if step else "all steps"
    rows = own.climbs(**({"step": step.number} if step else {})), own.answers(step.number if step else None)
    count = sum(map(len, rows))
    if not confirmed:
        print(
            f"This sets aside what is kept of {what}, {plural(count, 'row')}: climbs, predictions and solved exercises. What you typed "
            "stays. Type yes to go on: ",
            end="",
        )
        if sys.stdin.readline().strip().lower() != "yes":
            return ""
    gone = plural(own.reset(step.number if step else None), "row")
    return f"Set aside of {what}: {gone}. `course progress --restore` takes the last reset back."


def ladder(args: argparse.Namespace) -> int:
    """Export the reader's rungs, or merge those of a class. Returns 1 for a file that cannot be read, and if nothing is left to show."""
    from helpers.course import class_ladder

    if args.action == "export":
        saved = class_ladder.export(args.file, args.name)
        print(f"Saved in {args.file}: {plural(saved, 'rung')}, with the source of each kernel.")
        return 0
    merged = class_ladder.class_ladder(*args.file, again=args.again)
    if not merged.climbs:
        print(*merged.said, "The class ladder is empty.", sep="\n")
        return 1
    print(merged)
    if args.picture:
        from helpers.files import write_export
        from helpers.views.canvas import to_svg

        try:
            drawn = to_svg(merged.draw()).encode()
            write_export(args.picture, drawn, drawn[: len("<svg")])
        except OSError as error:
            raise CourseError(f"{args.picture} cannot be written ({error.strerror or error}).") from None
        print(f"The picture is {args.picture}.")
    return 1 if merged.unread else 0


def grading(args: argparse.Namespace) -> int:
    """Make a folder for nbgrader, or mark notebooks by its secret. Returns 1 for a notebook that cannot be read."""
    from helpers.course.grading import course_directory

    if args.action == "make":
        print("\n".join(course_directory.make(args.folder, _steps(args.step))))
        return 0
    grader, unread = course_directory.grader(args.folder), 0
    for path in args.notebook:
        try:
            marks = course_directory.mark_notebook(path, grader)
        except CourseError as error:
            print(f"{path}: {error.message}")
            unread += 1
            continue
        print(f"{path}: {sum(mark.points for mark in marks):g} of {sum(mark.most for mark in marks)} points.")
        print(*marks, sep="\n")
    return 1 if unread else 0


def _steps(wanted: Sequence[str]) -> list:
    """The steps of these numbers or slugs; all if there are none."""
    from helpers.course.steps import STEPS, get

    return [get(step) for step in wanted] or list(STEPS)


def test(args: argparse.Namespace) -> int:
    """Run pytest in the checkout: the suite on two workers, with a part of each table of cases and of what is slow, or whole by `--all`;
    or just what the arguments say, on one worker."""
    if not (ROOT / "tests").is_dir():
        raise CourseError(f"There are no tests in {ROOT}: run `course test` in a clone of the course's repository.")
    if importlib.util.find_spec("pytest") is None:
        return subprocess.run([*_with_test_packages(), *args.rest], cwd=ROOT, check=False).returncode
    workers = ["--numprocesses", str(min(2, processors.available()))]
    whole = {(): [*workers, "--cases", "next/20"], ("--all",): workers}
    command = [sys.executable, "-m", "pytest", *whole.get(tuple(args.rest), args.rest)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _with_test_packages() -> list[str]:
    """The command that adds what the tests need to this environment, and runs `course test` there. Readers' environments lack it."""
    uv = os.environ.get("UV") or shutil.which("uv")  # `uv run` says where it is
    if uv is None:
        raise CourseError("What the tests need is not installed: `pip install --group test` in the clone adds it.")
    cuda12 = any(found.name == "cupy-cuda12x" for found in importlib.metadata.distributions())
    by_cuda12 = ["--no-group", "cuda13", "--group", "cuda12"] if cuda12 else []
    return [uv, "run", *by_cuda12, "--group", "test", "course", "test"]


def check(args: argparse.Namespace) -> int:
    """Put reference kernels through their check, here and now. Returns 1 if one fails."""
    from helpers.course.steps import STEPS, get

    steps = STEPS if args.step is None else [get(args.step)]
    from helpers.course import exercises  # after the arguments were found to be right: it brings the compiler

    failed = 0
    for step in steps:
        if step.kernel_path is None:
            print(f"{step.name}: no kernel to check")
            continue
        report = exercises.check_step(step, on=args.on)
        failed += not report.passed
        print(f"{step.name}: {report}")
    return 1 if failed else 0


def record(args: argparse.Namespace) -> int:
    from helpers.course.record import main as run

    return run(args.rest)


def sync(args: argparse.Namespace) -> int:
    from . import catalogues, notebooks

    return notebooks.sync(check=args.check) | catalogues.sync_catalogues(check=args.check)


def slides(args: argparse.Namespace) -> int:
    from .slides import build

    return build(args.notebooks, args.output, execute=not args.no_execute)


def site(args: argparse.Namespace) -> int:
    from .site.build import build

    return build(args.output, [name for name in args.lessons.split(",") if name], args.pyodide)


def colab(args: argparse.Namespace) -> int:
    from .launchers import write_colab

    return write_colab(args.output)


def cheatsheet(args: argparse.Namespace) -> int:
    from .cheatsheet import write

    return write(args.output)


def gpu(args: argparse.Namespace) -> int:
    """The GPU that a class shares: run the service, make a learner's token, or ask how it stands."""
    from helpers.run.shared_gpu import credentials

    if args.what == "token":
        print(credentials.token(credentials.made_secret(args.folder), args.name))
        return 0
    if args.what == "status":
        from helpers.run.shared_gpu import sending

        found = sending.status()
        print(
            f"{found['device']}: {found['gpus']} shared by the class, {found['running']} at work, "
            f"{plural(found['queued'], 'kernel')} waiting, {found['yours']} of them yours ({found['learner']}). "
            f"A kernel may run {found['seconds']:g} s."
        )
        return 0
    if importlib.util.find_spec("distributed") is None:
        raise CourseError("The service needs Dask: `uv run --extra class course gpu serve` installs it.")
    from helpers.run.shared_gpu import service

    gpus = ("",) * args.simulated or tuple(args.gpu or service.gpus())
    return service.serve(service.Settings(
        args.folder, gpus, bool(args.simulated), args.seconds, args.queued, args.host, args.port, args.socket,
    ))  # fmt: skip


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="course", description="The GEMM Ladder.", allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="command")

    def command(run, text: str) -> argparse.ArgumentParser:
        name = run.__name__
        more = f" Further arguments go to {PASS_ON[name]}." if name in PASS_ON else ""
        made = commands.add_parser(name, help=text, description=text + more, allow_abbrev=False, add_help=name != "record")
        made.set_defaults(run=run)
        return made

    opened = command(lab, "Open JupyterLab at the page of your progress, beside your lessons; an update leaves them as you changed them.")
    opened.add_argument("--shipped", action="store_true", help="open the repository's own notebooks, to change the course itself")
    opened.add_argument("--hub", action="store_true", help="be the server that JupyterHub starts for one of its users (see deploy/)")
    opened.add_argument("--language", metavar="CODE", help="of the lessons' text and questions, as far as they are translated, such as zh")
    seen = command(progress, "Show where you stand: lessons, exercises, rungs, time, predictions, and what is next.")
    seen.add_argument("--export", type=Path, metavar="FILE", help="save all that is kept of you to a file")
    seen.add_argument("--import", dest="load", type=Path, metavar="FILE", help="add what such a file holds to what you have")
    seen.add_argument("--reset", metavar="STEP", help="begin a step anew (3 or shared_tile), or all; asks first")
    seen.add_argument("--yes", action="store_true", help="reset without asking")
    seen.add_argument("--restore", action="store_true", help="take the last reset back")
    laddered = command(ladder, "A ladder of a whole class: export your rungs, or merge the files of all.")
    actions = laddered.add_subparsers(dest="action", required=True, metavar="action")
    exported = actions.add_parser("export", help="save your rungs to a file, with the sources of their kernels", allow_abbrev=False)
    exported.add_argument("file", type=Path, help="where to")
    exported.add_argument("--name", required=True, help="who you are on the class ladder")
    merged = actions.add_parser("merge", help="show the rungs of several files as one ladder", allow_abbrev=False)
    merged.add_argument("file", nargs="+", type=Path, help="files of `course ladder export`")
    merged.add_argument("--picture", type=Path, metavar="FILE.svg", help="also draw the product that most have climbed")
    merged.add_argument("--again", action="store_true", help="compile, check and predict anew what is predicted; a minute or so each")
    graded = command(grading, "For who grades a class: exercises for nbgrader, judged by the text of the answers alone.")
    actions = graded.add_subparsers(dest="action", required=True, metavar="action")
    made = actions.add_parser(
        "make", help="write a course folder for nbgrader: an assignment per lesson, a notebook per exercise", allow_abbrev=False
    )
    made.add_argument("folder", type=Path, help="the course folder; files that are there stay as they are")
    made.add_argument("step", nargs="*", help="numbers or slugs of lessons, such as 3 or shared_tile (default: all)")
    marked = actions.add_parser("mark", help="mark notebooks without nbgrader, lessons among them", allow_abbrev=False)
    marked.add_argument("folder", type=Path, help="the course folder, whose secret the shapes are drawn from")
    marked.add_argument("notebook", nargs="+", type=Path, help="notebooks that were handed in")
    command(test, "Run the test suite, with the GPU tests if there is a GPU.")
    checked = command(check, "Check the reference kernel of one step, or of all.")
    checked.add_argument("step", nargs="?", help="number or slug, such as 3 or shared_tile")
    checked.add_argument("--on", choices=("cpu", "gpu"), help="where to run (default: the GPU if there is one)")
    command(record, "Time the reference kernels on this machine's GPU and write the results to helpers/data/.")
    synced = command(sync, "For those who change the course: write kernels/ into notebooks/, and bring these into their canonical form.")
    synced.add_argument("--check", action="store_true", help="write nothing; show what would change and exit with 1")
    shown = command(slides, "Build a reveal.js page from each lesson; the pages need no network.")
    shown.add_argument("notebooks", nargs="*", help="lessons by number or slug, or notebook files (default: all lessons)")
    shown.add_argument("--output", default="build/slides", help="folder for the pages (default: %(default)s)")
    shown.add_argument("--no-execute", action="store_true", help="do not run the notebooks first: no pictures")
    published = command(site, "Build the course as a website: every lesson executed, and the machine in the page. Needs no server.")
    published.add_argument("--output", type=Path, default=Path("build/site"), help="folder for the site, made anew (default: %(default)s)")
    published.add_argument("--lessons", default="", metavar="01,02", help="only these, by number or slug (default: all)")
    published.add_argument("--pyodide", type=Path, metavar="FOLDER", help="a folder of Pyodide's files (default: that of the extra `site`)")
    fetched = command(colab, "Write the lessons as Google Colab opens them: with a first cell that fetches the course.")
    fetched.add_argument("--output", type=Path, default=Path("build/colab"), help="folder for the notebooks (default: %(default)s)")
    sheet = command(cheatsheet, "Write the course's rules, limits and steps on one page to print.")
    sheet.add_argument("--output", type=Path, default=Path("build/cheatsheet.html"), help="the page (default: %(default)s)")
    _add_gpu(command(gpu, "One GPU for a class: run the service that shares it, make learners' tokens, see how it stands."))
    return top


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Reads a whole number within limits. What it makes raises argparse.ArgumentTypeError."""

    def read(text: str) -> int:
        value = int(text) if text.removeprefix("-").isdecimal() else least - 1
        if value < least or (most is not None and value > most):
            limits = f", at least {least}" if most is None else f" from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{text} is none: give a whole number{limits}")
        return value

    return read


def _seconds(text: str) -> float:
    """Reads a time. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is none: give a number of seconds above 0")
    return value


def _add_gpu(made: argparse.ArgumentParser) -> None:
    from helpers.run.shared_gpu.credentials import usual_folder

    actions = made.add_subparsers(dest="what", required=True, metavar="action")
    serve = actions.add_parser("serve", help="run the service on the machine with the GPU", allow_abbrev=False)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen at; 0.0.0.0 is all (default: %(default)s)")
    serve.add_argument("--port", type=_whole(0, 65535), default=8790, help="port to listen at, 0 for a free one (default: %(default)s)")
    serve.add_argument("--socket", type=Path, metavar="PATH", help="listen at a socket of this machine instead")
    serve.add_argument("--seconds", type=_seconds, default=20.0, help="that a kernel may run (default: %(default)s)")
    serve.add_argument("--queued", type=_whole(1), default=4, help="kernels that each learner may have waiting (default: %(default)s)")
    serve.add_argument("--gpu", action="append", metavar="UUID", help="share this GPU, and others named so (default: all)")
    serve.add_argument(
        "--simulated", type=_whole(0), default=0, metavar="N", help="no GPU: N workers with the SIMT machine, to try the service"
    )
    token = actions.add_parser("token", help="print a learner's token", allow_abbrev=False)
    token.add_argument("name", help="of the learner")
    for one in (serve, token):
        one.add_argument("--folder", type=Path, default=usual_folder(), help="of the service's secret, certificate and log")
    actions.add_parser("status", help="how the GPU that this user's notebooks share stands", allow_abbrev=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 1 for a failure the command reports, 2 for wrong arguments, and what a shell reports for
    Ctrl-C, and for a program like `head` that has read enough."""
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()  # here, and not at the end of Python, where nobody could catch it
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return 141


def _run(argv: Sequence[str] | None) -> int:
    top = parser()
    args, rest = top.parse_known_args(argv)
    args.rest = rest
    if args.rest and args.command not in PASS_ON:
        top.error(f"{args.command} does not take {' '.join(args.rest)}")
    try:
        return args.run(args)
    except CourseError as error:
        print(f"course {args.command}: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
