"""Progress is never lost: two writers, resets, migrations, read-only folders, full disks; and rungs are honest."""

import contextlib
import json
import multiprocessing
import os
import sqlite3
import sys
import threading

import pytest

from helpers.course import ladder
from helpers.course.ladder import Store
from helpers.errors import CourseError

ROW = {"label": "naive", "kind": "measured", "m": 4096, "n": 4096, "k": 4096, "device": "NVIDIA H200", "step": 1}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))
    ladder._store.cache_clear()
    yield tmp_path
    ladder._store.cache_clear()


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
    newer = (*ladder.MIGRATIONS, "ALTER TABLE climbs ADD COLUMN note TEXT; UPDATE climbs SET note = 'old'")
    new = Store(tmp_path / "data", migrations=newer)
    new.answer("q", 1)
    with contextlib.closing(sqlite3.connect(new.path)) as db:
        assert db.execute("SELECT note FROM climbs").fetchall() == [("old",)]
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    with contextlib.closing(sqlite3.connect(new.path.with_suffix(".v1.sqlite3"))) as db:
        assert db.execute("SELECT count(*) FROM climbs").fetchone() == (1,)


def test_a_migration_that_fails_changes_nothing(tmp_path, said):
    old = Store(tmp_path / "data")
    old.climb(**ROW, milliseconds=2.0)
    broken = (*ladder.MIGRATIONS, "ALTER TABLE climbs ADD COLUMN note TEXT; SELECT nonsense FROM nowhere")
    with pytest.raises(sqlite3.OperationalError):
        Store(tmp_path / "data", migrations=broken, announce=said.append).climbs()
    assert [row.milliseconds for row in old.climbs()] == [2.0]
    with contextlib.closing(sqlite3.connect(old.path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_file_of_a_newer_course_is_left_alone(tmp_path, said):
    newer = (*ladder.MIGRATIONS, "ALTER TABLE climbs ADD COLUMN note TEXT")
    Store(tmp_path / "data", migrations=newer).climb(**ROW, milliseconds=2.0)
    old = Store(tmp_path / "data", announce=said.append)
    old.climb(**ROW, milliseconds=5.0)
    assert "newer version of the course" in said[0] and not old.climbs()[0].saved
    with contextlib.closing(sqlite3.connect(old.path)) as db:
        assert db.execute("SELECT count(*) FROM climbs").fetchone() == (1,)


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


def test_a_folder_that_cannot_be_made(tmp_path, said):
    (tmp_path / "file").write_text("in the way")
    check_goes_on_in_memory(Store(tmp_path / "file" / "folder", announce=said.append), said, "cannot be made")


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


def test_a_file_that_is_no_database(tmp_path, said):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ladder.FILE).write_bytes(b"not a database at all" * 100)
    store = Store(tmp_path / "data", announce=said.append)
    check_goes_on_in_memory(store, said, "cannot be used")
    assert store.path.read_bytes().startswith(b"not a database"), "left as it is"


def test_a_lock_held_too_long(store, said, monkeypatch):
    store.climb(**ROW, milliseconds=1.0)
    monkeypatch.setattr(ladder, "BUSY_SECONDS", 0.05)
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store.climb(**ROW, milliseconds=2.0)
    assert "held by another program" in said[0]


# -------------------------------------------------------------------------------------------------- the rungs


@pytest.fixture
def one_recorded_file(tmp_path, monkeypatch):
    folder = tmp_path / "recorded"
    folder.mkdir()
    row = {
        "step": 2, "slug": "coalesced", "dtype": "float32", "m": 4096, "n": 4096, "k": 4096, "milliseconds": 20.0,
        "tflops": 6.87, "cublas_ratio": 0.137, "cublas_milliseconds": 2.74, "clock_mhz": 1980.0, "spread": 0.001,
        "date": "2026-11-21", "device": "NVIDIA H200",
    }  # fmt: skip
    (folder / "h200.json").write_text(json.dumps([row, {**row, "cublas_milliseconds": 2.70, "step": 1, "slug": "naive"}]))
    monkeypatch.setattr(ladder, "recorded", lambda: json.loads((folder / "h200.json").read_text()))


def test_rungs_of_all_kinds_are_labelled(one_recorded_file):
    ladder.climb(**ROW, milliseconds=300.0)
    ladder.climb(**ROW, milliseconds=280.0)
    ladder.climb(**{**ROW, "kind": "predicted", "device": "RTX 4090"}, milliseconds=400.0)
    ladder.climb(**{**ROW, "kind": "counted", "device": "SIMT machine"})
    got = ladder.rungs(4096)
    assert {rung.kind for rung in got} == {"measured", "predicted", "counted", "recorded", "published", "limit"}
    mine = [rung for rung in got if rung.mine]
    assert [rung.milliseconds for rung in mine if rung.kind == "measured"] == [280.0], "the best of each kind"
    assert {rung.label for rung in mine} == {
        "naive (yours, measured)", "naive (yours, predicted)", "naive (yours, counted)"
    }  # fmt: skip
    cublas = [rung for rung in got if rung.name == "cuBLAS" and rung.kind == "recorded"]
    assert [(rung.device, rung.milliseconds) for rung in cublas] == [("H200 SXM", 2.70)]
    assert all(rung.source for rung in got if rung.kind in ("published", "limit", "recorded"))


def test_one_device_goes_by_any_of_its_names(one_recorded_file):
    for name in ("NVIDIA H200", "H200 SXM"):
        got = ladder.rungs(4096, device=name)
        assert {rung.device for rung in got} <= {"H200 SXM", "NVIDIA H200"}
        assert "limit" in {rung.kind for rung in got} and "recorded" in {rung.kind for rung in got}
        speeds = [rung.tflops for rung in got]
        assert speeds == sorted(speeds) and got[-1].kind == "limit"


def test_kinds_can_be_chosen_and_sizes_do_not_mix(one_recorded_file):
    assert {rung.kind for rung in ladder.rungs(4096, kinds=["published"])} == {"published"}
    assert ladder.rungs(4096, 4096, 17, kinds=["recorded", "published", "measured"]) == []


def test_the_limit_is_the_roofline():
    assert ladder.limit("H200 SXM", 4096, 4096, 4096).tflops == pytest.approx(66.9, rel=0.001)
    thin = ladder.limit("H200 SXM", 1, 4096, 4096)
    assert thin.tflops == pytest.approx(4800e9 / 2 / 1e12, rel=0.001) and "DRAM" in thin.name
    assert ladder.limit("unheard of", 8, 8, 8) is None


def test_published_rungs_name_their_source():
    rungs = ladder.published()
    assert len(rungs) > 50
    assert all(rung.source and rung.kind == "published" and rung.tflops > 0 and not rung.mine for rung in rungs)
    a6000 = {rung.name: rung for rung in rungs if rung.device == "RTX A6000"}
    assert a6000["naive"].cublas_ratio == pytest.approx(0.013, abs=0.0005)  # "1.3 %" in the source
    assert a6000["warp tile"].cublas_ratio == pytest.approx(0.937, abs=0.0005)


def test_a_damaged_recording_is_named(tmp_path):
    (tmp_path / "h200.json").write_text("[{")
    with pytest.raises(CourseError, match="h200.json"):
        ladder.recorded(tmp_path)


def test_a_fresh_reader_has_no_rungs_of_their_own():
    assert not any(rung.mine for rung in ladder.rungs(4096))
