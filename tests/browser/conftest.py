"""JupyterLab as `course lab` starts it, and Chromium on it. A test of one more notebook takes the `open_notebook`
fixture and is one function.

The server sees a copy of the notebooks and a home of its own, so that neither the checkout nor the user's progress is
touched. Every test also fails on an error in the browser's console, and on any request that leaves this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest
from nbformat import NotebookNode

from helpers.front.notebooks import METADATA
from helpers.front.slides import freeze_widgets
from tests import ROOT

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARTIFACTS = ROOT / "test-artifacts"
START_SECONDS = 90.0
RUN_SECONDS = 240.0
LOOK_MILLISECONDS = 200.0  # between two looks at a long wait; looking in every frame takes the processor from the lesson

# No sandbox, because CI runs as root; the rest keeps Chromium from calling home at every start.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip

SAVE_WIDGETS = "@jupyter-widgets/jupyterlab-manager:saveWidgetState"  # JupyterLab's command to begin with it, and to end

# What JupyterLab itself writes to the console, with nobody at fault.
JUPYTERLAB_NOISE = (
    "Could not restore the debugger state",  # a kernel was restarted while the debugger's first question was open
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder, so that `-m browser` finds it."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def installed_browser() -> str | None:
    """Path of the first of BROWSERS that is installed."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    path = installed_browser()
    if path is None:
        message = f"none of {', '.join(BROWSERS)} is installed; on Debian: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


@dataclass(frozen=True)
class Lab:
    """A running server: its address, its token, the folder of lessons that it shows, the course they come from, and its log."""

    url: str
    token: str
    root: Path
    shipped: Path
    log: Path

    def ask(self, path: str, method: str = "GET") -> Any:
        """What the server answers on `path`, as parsed JSON. Raises OSError if it does not, or refuses."""
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers={"Authorization": f"token {self.token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    @property
    def home(self) -> Path:
        """$GEMM_LADDER_HOME of its kernels."""
        return self.root.parent

    def forget_progress(self) -> None:
        """Nothing was answered, solved or climbed, as on the first day. Kernels that run are not told."""
        for path in self.home.glob("progress.sqlite3*"):
            path.unlink()

    def answers(self) -> bool:
        try:
            return bool(self.ask("/api/status"))
        except OSError:
            return False

    def sessions(self) -> set[str]:
        """The notebooks' kernels that run now."""
        return {session["id"] for session in self.ask("/api/sessions")}

    def shut_down(self, sessions: set[str]) -> None:
        """A kernel outlives its page, and the next test should have the machine to itself."""
        for session in sessions & self.sessions():
            self.ask(f"/api/sessions/{session}", "DELETE")

    def write(self, name: str, cells: Mapping[str, str]) -> None:
        """Put a notebook beside the lessons. cells: id -> source of its code cells; ids that begin with "raises" may raise."""
        made = [
            {
                "cell_type": "code", "id": name, "source": text, "execution_count": None, "outputs": [],
                "metadata": {"tags": ["raises-exception"]} if name.startswith("raises") else {},
            }
            for name, text in cells.items()
        ]  # fmt: skip
        content = {"cells": made, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
        (self.root / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, make_home: Callable[[Path], Path]) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "course" / "notebooks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    environment = os.environ | {
        "GEMM_LADDER_HOME": str(make_home(folder / "home")),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    command = [
        sys.executable, "-m", "helpers.front.cli", "lab", "--no-browser", f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True",
        f"--LabApp.workspaces_dir={folder / 'workspaces'}", f"--LabApp.user_settings_dir={folder / 'settings'}",
    ]  # fmt: skip
    log = folder / "lab.log"
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=folder / "course", env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    lab = Lab(f"http://127.0.0.1:{port}", token, folder / "home" / "lessons", folder / "course", log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not lab.answers():
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"JupyterLab did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield lab
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture(scope="session")
def chromium(chromium_path: str):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Complaints:
    """What a page said that it should not have said."""

    errors: list[str] = field(default_factory=list)

    def watch(self, page, home: str) -> None:
        """Note console errors, uncaught exceptions, and requests to any host but that of the address `home`."""
        host = urlsplit(home).netloc

        def request(sent) -> None:
            parts = urlsplit(sent.url)
            if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != host:
                self.errors.append(f"request to {sent.url}")

        page.on("request", request)
        page.on("websocket", request)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("console", lambda message: self._console(message))

    def _console(self, message) -> None:
        if message.type == "error" and not message.text.startswith(JUPYTERLAB_NOISE):
            self.errors.append(f"console: {message.text} ({message.location.get('url', '')})")


class Notebook:
    """A notebook open in JupyterLab, in words a test can use."""

    def __init__(self, page, lab: Lab, name: str):
        self.page, self.lab, self.name = page, lab, name

    def open(self) -> Notebook:
        """Load the page and wait for the notebook's kernel."""
        self.page.goto(f"{self.lab.url}/lab/tree/{self.name}?reset&token={self.lab.token}")
        return self._ready()

    def open_next(self) -> Notebook:
        """Open it in the page as it is, if JupyterLab is there, as from its list of files; loading the page takes longer than some lessons."""
        if not self.page.url.startswith(self.lab.url):
            return self.open()
        self.command("docmanager:open", path=self.name)
        self.page.wait_for_function(
            "name => window.jupyterapp.shell.currentWidget?.context?.path === name",
            arg=self.name,
            timeout=START_SECONDS * 1000,
            polling=LOOK_MILLISECONDS,
        )
        return self._ready()

    def command(self, name: str, **arguments: object) -> None:
        """Run one of JupyterLab's commands to its end. What it gives stays there: a whole panel cannot be sent to a test."""
        self.page.evaluate("async ([name, given]) => { await window.jupyterapp.commands.execute(name, given); }", [name, arguments])

    def close(self) -> None:
        """Save and close it, and end its kernel. A dialog that was left open fails this test and none of those after it."""
        dialogs = self.dismiss_dialogs()
        self.command("docmanager:save")
        # A widget may tell its state once more after saving. JupyterLab would then ask whether to save, and a dialog keeps the focus.
        self.page.evaluate("() => { for (const widget of [...window.jupyterapp.shell.widgets('main')]) widget.dispose(); }")
        self.lab.shut_down(self.lab.sessions())
        assert not dialogs, f"{self.name} was left with a dialog: {dialogs}"

    def dismiss_dialogs(self) -> list[str]:
        """Answer each open dialog by Escape. What they said."""
        said: list[str] = []
        shown = self.page.locator(".jp-Dialog")
        while len(said) < 9 and (found := shown.all_inner_texts()):
            said += found
            self.page.keyboard.press("Escape")
            self.page.wait_for_timeout(LOOK_MILLISECONDS)
        return said

    def _ready(self) -> Notebook:
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=START_SECONDS * 1000)
        self.page.wait_for_function(
            """() => {
                const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
                return context?.isReady && context.session?.kernel?.status === 'idle';
            }""",
            timeout=START_SECONDS * 1000,
            polling=LOOK_MILLISECONDS,
        )
        return self

    def run_all(self) -> Notebook:
        """Run every cell, as the menu entry does, and wait until the last one is done, or one stopped the others by an error."""
        self.page.set_default_timeout(RUN_SECONDS * 1000)
        self.command("notebook:run-all-cells")
        self.page.wait_for_function(
            """() => {
                const panel = window.jupyterapp.shell.currentWidget;
                if (panel.sessionContext.session.kernel.status !== 'idle') return false;  // else all outputs would be copied at each look
                const code = [...panel.content.model.cells].filter(cell => cell.type === 'code');
                const done = code.every(cell => cell.executionCount !== null || !cell.sharedModel.getSource().trim());
                const stopped = !done && code.some(cell => !cell.getMetadata('tags')?.includes('raises-exception') &&
                    cell.outputs.toJSON().some(output => output.output_type === 'error'));
                return done || stopped;
            }""",
            timeout=RUN_SECONDS * 1000,
            polling=LOOK_MILLISECONDS,
        )
        return self

    def saved(self) -> NotebookNode:
        """The notebook, saved with the state of its widgets, each of which is replaced by what it shows."""
        self.command(SAVE_WIDGETS)  # a setting of all notebooks, so it is taken back
        self.command("docmanager:save")
        self.command(SAVE_WIDGETS)
        notebook = nbformat.read(self.lab.root / self.name, as_version=4)
        nbformat.validate(notebook)
        assert "widgets" in notebook.metadata
        freeze_widgets(notebook)
        return notebook

    def error_outputs(self) -> list[str]:
        """Tracebacks and error names in the notebook's outputs, those inside widgets included."""
        stored = self.page.evaluate(
            """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
                .filter(cell => cell.type === 'code')
                .flatMap(cell => cell.outputs.toJSON())
                .filter(output => output.output_type === 'error')
                .map(output => `${output.ename}: ${output.evalue}`)"""
        )
        shown = self.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']")
        return stored + shown.all_inner_texts()

    def run_cell(self, index: int) -> None:
        """Run one cell, and do not wait for it."""
        self.show(index)
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell'); }")

    def wait_until_idle(self) -> None:
        """Wait until no cell is running or waiting to."""
        self.page.wait_for_function(
            """() => {
                const panel = window.jupyterapp.shell.currentWidget;
                const busy = [...panel.content.widgets].some(cell => cell.promptNode?.textContent.includes('*') ||
                    cell.inputArea?.promptNode.textContent.includes('*'));
                return panel.sessionContext.session.kernel.status === 'idle' && !busy;
            }""",
            timeout=RUN_SECONDS * 1000,
            polling=LOOK_MILLISECONDS,
        )

    def alternatives(self, cell) -> list[str]:
        """The alternative texts of the pictures in `cell`."""
        return [text or "" for text in cell.locator(".jp-OutputArea img").evaluate_all("found => found.map(image => image.alt)")]

    def overflowing(self, cell) -> list[str]:
        """Classes of the outputs of `cell` that are wider than their place, and would be cut or scroll."""
        return cell.locator(".jp-OutputArea-output").evaluate_all(
            "found => found.filter(output => output.scrollWidth > output.clientWidth + 2).map(output => output.className)"
        )

    def wait_for(self, cell, text: str) -> None:
        """Wait until a picture of the cell, or what stands in its place, says `text`."""
        holds = (
            "([cell, text]) => [...cell.querySelectorAll('img')].some(image => image.alt.includes(text)) || cell.innerText.includes(text)"
        )
        self.page.wait_for_function(holds, arg=[cell.element_handle(), text], timeout=15000)

    def cell(self, text: str):
        """The code cell whose source contains `text`, scrolled into view."""
        index = self.page.evaluate(
            """text => [...window.jupyterapp.shell.currentWidget.content.model.cells]
                .findIndex(cell => cell.type === 'code' && cell.sharedModel.getSource().includes(text))""",
            text,
        )
        assert index >= 0, f"{self.name} has no code cell with {text!r}"
        return self.show(index)

    def show(self, index: int):
        """Cell number `index`, selected and scrolled to the top of the page."""
        self.page.evaluate(
            """async index => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                notebook.activeCellIndex = index;
                await notebook.scrollToItem(index, 'start');
            }""",
            index,
        )
        cell = self.page.locator(f".jp-Cell[data-windowed-list-index='{index}']")
        cell.wait_for()
        return cell

    def widget_cells(self) -> list[int]:
        """Numbers of the cells that show a widget."""
        return self.page.evaluate(
            """() => [...window.jupyterapp.shell.currentWidget.content.model.cells].flatMap((cell, index) =>
                cell.type === 'code' && cell.outputs.toJSON().some(output =>
                    output.data?.['application/vnd.jupyter.widget-view+json']) ? [index] : [])"""
        )

    def pictures(self, cell) -> list[str]:
        """The data of every picture (or listing) that the outputs of `cell` show, in order."""
        return cell.locator(".jp-OutputArea img, .jp-OutputArea svg, .jp-OutputArea .ladder-listing").evaluate_all(
            "found => found.map(picture => picture.src || picture.outerHTML)"
        )

    def sliders(self, cell) -> list:
        """The sliders of `cell` that can be seen and moved."""
        return cell.locator(".noUi-target:not([disabled]) [role='slider']:visible").all()

    def menus(self, cell) -> list:
        """The menus of `cell` that can be seen and offer a choice."""
        return [menu for menu in cell.locator(".jp-OutputArea select:enabled:visible").all() if menu.locator("option").count() > 1]

    def press(self, cell, control, key: str) -> bool:
        """Focus a slider or a menu and press a key. Does a picture of the cell change by the time its kernel has answered?"""
        before = self.pictures(cell)
        control.focus()
        self.page.keyboard.press(key)
        # The kernel takes messages in order, so it has dealt with the control when this question is answered.
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestKernelInfo().then(() => null)")
        deadline = time.monotonic() + 3  # a busy machine's browser is behind its kernel
        while self.pictures(cell) == before and time.monotonic() < deadline:
            self.page.wait_for_timeout(50)
        return self.pictures(cell) != before

    def set_theme(self, name: str) -> None:
        """Change JupyterLab's theme, and wait until it is in effect."""
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_selector(f"body[data-jp-theme-name='{name}']", state="attached")
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")

    def screenshot(self, name: str) -> Path:
        """Keep a picture of the page under test-artifacts/."""
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    """Watches pages; the test fails if there was anything to complain about."""
    found = Complaints()
    yield found
    assert not found.errors, "\n".join(found.errors)


@contextlib.contextmanager
def new_page(chromium, lab: Lab, complaints: Complaints) -> Iterator:
    """A page of its own, watched; the kernels that it starts end with it."""
    before = lab.sessions()
    context = chromium.new_context(viewport={"width": 1400, "height": 1000}, accept_downloads=True)
    context.set_default_timeout(START_SECONDS * 1000)
    made = context.new_page()
    complaints.watch(made, lab.url)
    yield made
    context.close()
    lab.shut_down(lab.sessions() - before)


@pytest.fixture
def page(chromium, lab: Lab, complaints: Complaints) -> Iterator:
    with new_page(chromium, lab, complaints) as made:
        yield made


@pytest.fixture(scope="module")
def shared_complaints() -> Complaints:
    return Complaints()


@pytest.fixture(scope="module")
def shared_page(chromium, lab: Lab, shared_complaints: Complaints) -> Iterator:
    """One page for all tests of a file that ask for it (and for `no_complaints`): starting a kernel takes longer than a test."""
    with new_page(chromium, lab, shared_complaints) as made:
        yield made


@pytest.fixture
def no_complaints(shared_complaints: Complaints) -> Iterator[None]:
    """The test fails if anything was to complain about on the shared page."""
    shared_complaints.errors.clear()
    yield
    assert not shared_complaints.errors, "\n".join(shared_complaints.errors)


@pytest.fixture
def open_notebook(page, lab: Lab) -> Callable[[str], Notebook]:
    """open_notebook("01_naive.ipynb") loads it and waits for its kernel."""
    return lambda name: Notebook(page, lab, name).open()


@pytest.fixture(scope="module")
def open_shared(shared_page, lab: Lab) -> Callable[[str], Notebook]:
    """The same on the page that the tests of a file share."""
    return lambda name: Notebook(shared_page, lab, name).open()


@pytest.fixture
def open_next(shared_page, lab: Lab, no_complaints) -> Iterator[Callable[[str], Notebook]]:
    """open_next("01_naive.ipynb") opens it in the JupyterLab that the tests of a file share, and closes it at the end."""
    opened: list[Notebook] = []

    def open_one(name: str) -> Notebook:
        opened.append(Notebook(shared_page, lab, name).open_next())
        return opened[-1]

    yield open_one
    for notebook in opened:
        notebook.close()
