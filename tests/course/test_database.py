"""A damaged file is set aside with a sentence, and what can be read of it is not lost."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import shutil
import sqlite3

import pytest

from helpers.course.store import Store

ROW = {"label": "naive", "kind": "measured", "m": 4096, "n": 4096, "k": 4096, "device": "NVIDIA H200", "step": 1}
COUNT = 300


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A file of 300 climbs and 300 answers over many pages, and the number of bytes of a page."""
    store = Store(tmp_path_factory.mktemp("sound"))
    store.climb(**ROW, milliseconds=1.0)
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as db:
        db.execute("BEGIN")
        for number in range(2, COUNT + 1):
            db.execute(
                "INSERT INTO climbs SELECT ?, created, archived, kind, step, label, device, dtype, m, n, k, ?, 1.0, NULL, ?, ?, counters, NULL, out_dtype"
                " FROM climbs WHERE id = 1", (number, float(number), f"source {number} " * 20, f"{number}"),
            )  # fmt: skip
        for number in range(1, COUNT + 1):
            db.execute("INSERT INTO answers (created, question, answer, step) VALUES ('', ?, ?, 1)", (f"q{number}", str(number)))
        db.execute("COMMIT")
        page = db.execute("PRAGMA page_size").fetchone()[0]
    return store.path, page


def use(folder):
    """What a session does with its file; (times of the climbs, answers, sentences)."""
    said = []
    store = Store(folder, announce=said.append)
    climbs = [row.milliseconds for row in store.climbs()]
    answers = {row.question: row.answer for row in store.answers()}
    assert store.climb(**ROW, milliseconds=0.5).saved and not store.problem
    store.answer("new", 1)
    assert 0.5 in [row.milliseconds for row in store.climbs()]
    again = Store(folder, announce=said.append)
    assert 0.5 in [row.milliseconds for row in again.climbs()] and again.answers(question="new")
    assert store.reset() and store.restore()
    return climbs, answers, said


@pytest.mark.parametrize("seed", range(60))
def test_damage_anywhere_costs_no_more_than_its_pages(sound, tmp_path, seed):
    path, page = sound
    chance = random.Random(seed)
    data = bytearray(path.read_bytes())
    pages = len(data) // page
    hit = chance.randrange(1, pages)  # not the first, which says where everything is
    kind = chance.choice(("zero", "noise", "middle"))
    start, size = (hit * page, page) if kind != "middle" else (hit * page + chance.randrange(page // 2), page // 2)
    data[start : start + size] = bytes(size) if kind == "zero" else chance.randbytes(size)
    (tmp_path / path.name).write_bytes(data)
    climbs, answers, said = use(tmp_path)
    right = [time for time in climbs if time in range(1, COUNT + 1)]
    assert len(right) + len(set(answers) & {f"q{number}" for number in range(1, COUNT + 1)}) > 0.5 * COUNT
    assert len(said) <= 1
    for sentence in said:
        (aside,) = tmp_path.glob("*.damaged1*")
        assert "was damaged" in sentence and str(aside) in sentence and aside.read_bytes()[page:] == bytes(data)[page:]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.6, 0.99])
def test_a_cut_file(sound, tmp_path, share):
    path, _ = sound
    data = path.read_bytes()
    (tmp_path / path.name).write_bytes(data[: int(len(data) * share)])
    climbs, answers, said = use(tmp_path)
    assert len(said) == (share > 0)
    if share == 0.99:
        assert len(climbs) + len(answers) > 1.5 * COUNT


def test_the_first_page_is_noise(sound, tmp_path):
    path, page = sound
    data = bytearray(path.read_bytes())
    data[16:page] = random.Random(0).randbytes(page - 16)
    (tmp_path / path.name).write_bytes(data)
    _, _, said = use(tmp_path)
    assert len(said) == 1


def test_a_damaged_text_costs_its_row(sound, tmp_path):
    """Where SQLite's own check sees nothing: the JSON of one row."""
    shutil.copy(sound[0], tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / sound[0].name)) as db:
        db.execute("UPDATE climbs SET counters = '{\"x\": ' WHERE id = 7")
        db.execute("UPDATE climbs SET counters = CAST(x'ff00fe' AS TEXT) WHERE id = 8")
        db.execute("UPDATE climbs SET m = 'many' WHERE id = 9")
        db.execute("UPDATE answers SET answer = '' WHERE id = 5")
        db.commit()
    climbs, answers, said = use(tmp_path)
    assert climbs == [float(number) for number in range(1, COUNT + 1) if number not in (7, 8, 9)]
    assert len(answers) == COUNT - 1 and said == []


def mend(folder, results):
    said = []
    store = Store(folder, announce=said.append)
    results.put((len(store.climbs()), store.climb(**ROW, milliseconds=0.5).saved, said))


def test_notebooks_that_find_the_damage_together_mend_it_once(sound, tmp_path):
    path, page = sound
    data = bytearray(path.read_bytes())
    data[4 * page : 5 * page] = bytes(page)
    (tmp_path / path.name).write_bytes(data)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=mend, args=(tmp_path, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sum(len(said) for _, _, said in answers) == 1 and all(saved for _, saved, _ in answers)
    assert len(list(tmp_path.glob("*.damaged*"))) == 1
    assert len([row for row in Store(tmp_path).climbs() if row.milliseconds == 0.5]) == 4
