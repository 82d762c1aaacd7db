"""Progress is never lost: two writers, resets, migrations, read-only folders, full disks."""

import contextlib
import multiprocessing
import os
import sqlite3
import sys
import threading

import pytest

from helpers.course import database
from helpers.course import store as stores
from helpers.course.store import Store
from tests.test_files import NO_FILES, in_the_way

ROW = {"label": "naive", "kind": "measured", "m": 4096, "n": 4096, "k": 4096, "device": "NVIDIA H200", "step": 1}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def said():
    return []


@pytest.fixture
def store(tmp_path, said):
    return Store(tmp_path / "new" / "folder", announce=said.append)


def test_a_climb_comes_back_as_it_was_saved(store):
    saved = store.climb(**ROW, milliseconds=275.0, source="__global__ …", counters={"requests": 3}, cublas_ratio=0.01)
    (got,) = store.climbs()
    assert got == saved and got.saved and got.id == 1
    assert got.counters == {"requests": 3} and got.source == "__global__ …" and len(got.source_hash) == 64
    assert got.tflops == pytest.approx(2 * 4096**3 / 0.275 / 1e12)


def test_climbs_are_found_by_column(store):
    store.climb(**ROW, milliseconds=2.0)
    store.climb(**{**ROW, "step": None, "kind": "counted", "label": "mine"})
    assert [row.label for row in store.climbs(step=None)] == ["mine"]
    assert [row.label for row in store.climbs(step=1, m=4096)] == ["naive"]
    assert store.climbs(step=2) == []
    with pytest.raises(ValueError, match="no column"):
        store.climbs(speed=1)


def test_a_climb_says_how_it_came_about(store):
    with pytest.raises(ValueError, match="kind"):
        store.climb(**{**ROW, "kind": "guessed"})
    with pytest.raises(ValueError, match="time"):
        store.climb(**ROW)
    assert store.climb(**{**ROW, "kind": "predicted"}, milliseconds=1.0).kind == "predicted"


def test_looking_makes_no_file(store):
    assert store.climbs() == [] and store.answers() == []
    assert not store.path.exists()


def test_answers_are_kept_with_the_truth(store):
    store.answer("sectors per load of A", 4, step=1)
    store.answer("sectors per load of A", 32, truth=32, step=1)
    store.answer("why", ["latency", "bandwidth"], step=2)
    assert [(a.answer, a.truth) for a in store.answers(step=1)] == [(4, None), (32, 32)]
    assert [a.answer for a in store.answers(question="why")] == [["latency", "bandwidth"]]


# ----------------------------------------------------------------------------------------- resets and updates


def test_a_reset_archives_and_can_be_taken_back(store):
    store.climb(**ROW, milliseconds=2.0)
    store.climb(**{**ROW, "step": 2}, milliseconds=1.0)
    store.answer("q", 1, step=1)
    assert store.reset(step=1) == 2
    assert [row.step for row in store.climbs()] == [2] and store.answers() == []
    assert [row.step for row in store.climbs(archived=True)] == [1]
    store.climb(**ROW, milliseconds=3.0)
    assert store.restore() == 2
    assert [row.milliseconds for row in store.climbs(step=1)] == [2.0, 3.0]
    assert store.restore() == 0
    assert store.reset() == 4 and store.climbs() == []


def test_an_update_migrates_and_keeps_a_copy(tmp_path):
    old = Store(tmp_path / "data")
    old.climb(**ROW, milliseconds=2.0)
    newer = (*stores.MIGRATIONS, "ALTER TABLE climbs ADD COLUMN note TEXT; UPDATE climbs SET note = 'old'")
    new = Store(tmp_path / "data", migrations=newer)
    new.answer("q", 1)
    with contextlib.closing(sqlite3.connect(new.path)) as db:
        assert db.execute("SELECT note FROM climbs").fetchall() == [("old",)]
        assert db.execute("PRAGMA user_version").fetchone() == (len(newer),)
    with contextlib.closing(sqlite3.connect(new.path.with_suffix(f".v{len(stores.MIGRATIONS)}.sqlite3"))) as db:
        assert db.execute("SELECT count(*) FROM climbs").fetchone() == (1,)


def test_who_comes_second_to_a_migration_keeps_no_copy(tmp_path, monkeypatch):
    """Another notebook migrates the file, and writes, between the look at its schema and the migration."""
    Store(tmp_path / "data").climb(**ROW, milliseconds=2.0)
    newer = (*stores.MIGRATIONS, "ALTER TABLE climbs ADD COLUMN note TEXT")
    look, looked = database._schema, []

    def late(db):
        found = look(db)
        looked.append(found)
        if len(looked) == 2:  # the first look is that of `_open`
            Store(tmp_path / "data", migrations=newer).answer("of the other", 1)
        return found

    monkeypatch.setattr(database, "_schema", late)
    store = Store(tmp_path / "data", migrations=newer)
    store.answer("mine", 1)
    assert [answer.question for answer in store.answers()] == ["of the other", "mine"]
    with contextlib.closing(sqlite3.connect(store.path.with_suffix(f".v{len(stores.MIGRATIONS)}.sqlite3"))) as db:
        assert db.execute("SELECT count(*) FROM answers").fetchone() == (0,) and look(db) == len(stores.MIGRATIONS)


def test_a_migration_that_fails_changes_nothing(tmp_path, said):
    old = Store(tmp_path / "data")
    old.climb(**ROW, milliseconds=2.0)
    broken = (*stores.MIGRATIONS, "ALTER TABLE climbs ADD COLUMN note TEXT; SELECT nonsense FROM nowhere")
    with pytest.raises(sqlite3.OperationalError):
        Store(tmp_path / "data", migrations=broken, announce=said.append).climbs()
    assert [row.milliseconds for row in old.climbs()] == [2.0]
    with contextlib.closing(sqlite3.connect(old.path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(stores.MIGRATIONS),)


def test_climbs_of_before_there_were_types_of_results_keep_their_rungs(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with contextlib.closing(sqlite3.connect(folder / stores.FILE)) as db:
        db.executescript(stores.MIGRATIONS[0] + "PRAGMA user_version = 1;")
        for dtype in ("float32", "bfloat16"):
            db.execute(
                "INSERT INTO climbs (created, kind, label, device, dtype, m, n, k, milliseconds, source, source_hash, counters) "
                "VALUES ('2026-11-21', 'measured', 'naive', 'NVIDIA H200', ?, 64, 64, 64, 2.0, '', '', '{}')",
                (dtype,),
            )
        db.commit()
    store = Store(folder)
    assert [(row.dtype, row.out_dtype) for row in store.climbs()] == [("float32", "float32"), ("bfloat16", "bfloat16")]
    store.climb(**ROW, milliseconds=1.0, dtype="float16", out_dtype="float32")
    assert [row.milliseconds for row in store.climbs(dtype="float16", out_dtype="float32")] == [1.0]
    assert store.climbs(dtype="float16", out_dtype="float16") == []


def test_climbs_and_answers_follow_their_steps_to_new_numbers(tmp_path):
    old = Store(tmp_path / "data", migrations=stores.MIGRATIONS[:-1])
    for step, slug in ((10, "async_copy"), (11, "autotune"), (12, "fused_epilogue")):
        old.climb(**ROW | {"step": step, "label": slug}, milliseconds=2.0)
        old.answer(f"{slug}.registers", 1, step=step)
    new = Store(tmp_path / "data")
    assert [(row.step, row.label) for row in new.climbs()] == [(10, "async_copy"), (12, "autotune"), (13, "fused_epilogue")]
    assert [row.step for row in new.answers()] == [10, 12, 13]


def test_a_file_of_a_newer_course_is_left_alone(tmp_path, said):
    newer = (*stores.MIGRATIONS, "ALTER TABLE climbs ADD COLUMN note TEXT")
    Store(tmp_path / "data", migrations=newer).climb(**ROW, milliseconds=2.0)
    old = Store(tmp_path / "data", announce=said.append)
    old.climb(**ROW, milliseconds=5.0)
    assert "newer version of the course" in said[0] and not old.climbs()[0].saved
    with contextlib.closing(sqlite3.connect(old.path)) as db:
        assert db.execute("SELECT count(*) FROM climbs").fetchone() == (1,)


def test_resets_are_undone_in_their_order_though_the_clock_went_back(store, monkeypatch):
    clock = iter(["2030-01-02", "2030-01-03", "2029-12-31", "2029-12-30"])
    monkeypatch.setattr(stores, "now", lambda: next(clock))
    store.climb(**ROW, milliseconds=1.0)
    store.reset()
    store.climb(**ROW, milliseconds=2.0)
    store.reset()
    assert store.restore() == 1 and [row.milliseconds for row in store.climbs()] == [2.0]
    assert store.restore() == 1 and [row.milliseconds for row in store.climbs()] == [1.0, 2.0]


def test_resets_of_an_older_file_keep_their_order(tmp_path):
    old = sqlite3.connect(tmp_path / stores.FILE, isolation_level=None)
    old.executescript(stores.MIGRATIONS[0])
    for number, archived in enumerate(("2030-01-02", "2030-01-01", None, "2030-01-02")):
        old.execute("INSERT INTO answers (created, archived, question, answer) VALUES ('', ?, ?, '1')", (archived, str(number)))
    old.execute("PRAGMA user_version = 1")
    old.execute("PRAGMA journal_mode = WAL")
    old.close()
    store = Store(tmp_path)
    assert [row.question for row in store.answers()] == ["2"]
    assert store.restore() == 2 and [row.question for row in store.answers()] == ["0", "2", "3"]
    assert store.restore() == 1 and store.restore() == 0
    with contextlib.closing(sqlite3.connect(store.path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


# ------------------------------------------------------------------------------------------- several writers


def write_many(folder, start):
    mine = Store(folder)
    for number in range(start, start + 40):
        mine.climb(**ROW, milliseconds=float(number))
    assert not mine.problem, mine.problem


def test_two_notebooks_writing_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_many, args=(tmp_path / "data", 1 + 100 * i)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    times = [row.milliseconds for row in Store(tmp_path / "data").climbs()]
    assert sorted(times) == [float(1 + 100 * i + j) for i in range(3) for j in range(40)]


def test_threads_share_a_store(store):
    threads = [threading.Thread(target=lambda: [store.climb(**ROW, milliseconds=1.0) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(store.climbs()) == 40


def test_a_reset_in_one_notebook_keeps_what_another_writes(tmp_path):
    one, other = Store(tmp_path / "data"), Store(tmp_path / "data")
    one.climb(**ROW, milliseconds=1.0)
    one.reset()
    other.climb(**ROW, milliseconds=2.0)
    assert [row.milliseconds for row in one.climbs()] == [2.0]
    assert [row.milliseconds for row in one.climbs(archived=True)] == [1.0]


# ------------------------------------------------------------------------------------------ folders that refuse


def check_goes_on_in_memory(store, said, why):
    saved = store.climb(**ROW, milliseconds=7.0)
    assert not saved.saved and 7.0 in [row.milliseconds for row in store.climbs()]
    store.answer("q", 1)
    assert store.answers()[0].answer == 1 and store.reset() >= 2
    assert len(said) == 1, "said once"
    assert why in said[0] and "GEMM_LADDER_HOME" in said[0] and store.problem == said[0]


@pytest.mark.parametrize("folder", ["file/folder", "n" * 300], ids=["a file in the way", "a name too long"])
def test_a_folder_that_cannot_be_made(folder, tmp_path, said):
    (tmp_path / "file").write_text("in the way")
    check_goes_on_in_memory(Store(tmp_path / folder, announce=said.append), said, "cannot be made")


@NO_FILES
def test_what_is_no_file_is_said_and_left_there(tmp_path, said, what):
    store = Store(tmp_path, announce=said.append)
    in_the_way(store.path, what)
    check_goes_on_in_memory(store, said, "cannot be")


def read_only_session(folder, results):
    """In a process of its own, so that it can give up root's right to write everywhere."""
    if os.geteuid() == 0:
        os.setuid(65534)
    said = []
    mine = Store(folder, announce=said.append)
    before = [row.milliseconds for row in mine.climbs()]
    mine.climb(**ROW, milliseconds=7.0)
    results.put((before, [row.milliseconds for row in mine.climbs()], said))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no read-only folders of this kind")
def test_a_read_only_folder_shows_what_is_there_and_goes_on_in_memory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locked")
    Store(folder).climb(**ROW, milliseconds=1.0)
    for parent in [folder, *list(folder.parents)[:3]]:
        parent.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    worker = context.Process(target=read_only_session, args=(folder, results))
    worker.start()
    before, after, said = results.get(timeout=60)
    worker.join(60)
    folder.chmod(0o755)
    assert before == [1.0] and after == [1.0, 7.0]
    assert len(said) == 1 and "cannot be" in said[0]
    assert [row.milliseconds for row in Store(folder).climbs()] == [1.0]


@pytest.mark.parametrize("home", ["home", "home/deeper"])
def test_a_file_in_the_place_of_the_folder_is_said_to_who_only_looks(tmp_path, said, home):
    (tmp_path / "home").touch()
    store = Store(tmp_path / home, announce=said.append)
    assert not list(store.climbs()) and len(said) == 1 and "cannot be" in said[0] and store.problem
    fresh = Store(tmp_path / "new" / "home", announce=said.append)
    assert not list(fresh.climbs()) and not fresh.problem and not (tmp_path / "new").exists()


def test_a_full_disk(store, said, monkeypatch):
    store.climb(**ROW, milliseconds=1.0)
    really_open = Store._open

    def open_full(self):
        db = really_open(self)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        return db

    monkeypatch.setattr(Store, "_open", open_full)
    big = store.climb(**ROW, milliseconds=2.0, source="x" * 100_000)
    assert "the disk is full" in said[0] and not big.saved
    assert [row.milliseconds for row in store.climbs()] == [1.0, 2.0], "what was saved before is still shown"
    monkeypatch.undo()
    assert [row.milliseconds for row in Store(store.path.parent).climbs()] == [1.0]


def test_a_full_disk_hides_nothing(tmp_path, said, monkeypatch):
    """237 climbs, most of them still in the write-ahead log of another program when the disk fills up."""
    store = Store(tmp_path, announce=said.append)
    store.climb(**ROW, milliseconds=1.0)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("PRAGMA journal_mode = WAL").fetchone()
    names = "created, kind, label, device, dtype, m, n, k, milliseconds, source, source_hash, counters"
    for number in range(2, 238):
        other.execute(f"INSERT INTO climbs ({names}) VALUES ('', 'measured', 'x', '', 'float32', 1, 1, 1, ?, '', '', '{{}}')", (number,))

    def refused(*args):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "_run_on_file", refused)
    assert not store.climb(**ROW, milliseconds=238.0).saved
    assert [row.milliseconds for row in store.climbs()] == list(range(1, 239)) and "disk is full" in said[0]
    other.close()


def test_a_file_that_is_no_database(tmp_path, said):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / stores.FILE).write_bytes(b"not a database at all" * 100)
    store = Store(tmp_path / "data", announce=said.append)
    assert store.climb(**ROW, milliseconds=7.0).saved and not store.problem
    (sentence,) = said
    (aside,) = store.path.parent.glob("*.damaged*")
    assert "was damaged" in sentence and str(aside) in sentence
    assert aside.read_bytes().startswith(b"not a database"), "kept as it is"
    assert [row.milliseconds for row in Store(store.path.parent).climbs()] == [7.0]


def test_a_lock_held_too_long(store, said, monkeypatch):
    store.climb(**ROW, milliseconds=1.0)
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store.climb(**ROW, milliseconds=2.0)
    assert "held by another program" in said[0]
