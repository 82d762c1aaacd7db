"""A cache gives back what was put into it, or nothing: damaged, evicted by others, on a disk without room."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import time

import numpy as np
import pytest

from helpers.cache import Cache
from helpers.sim import simulate
from helpers.toolchain import compiled as compiled_module
from helpers.toolchain.compile import compile_source
from tests.test_files import NO_FILES, in_the_way

SOURCE = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))
    return tmp_path


def files(home, name="x"):
    return sorted((home / "cache" / name).iterdir())


def test_what_was_put_comes_back():
    cache = Cache("x", 5)
    cache.put("a", b"1")
    cache.put("b", b"")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"1", b"", None)


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_comes_back_as_data(home, seed):
    chance = random.Random(seed)
    cache, data = Cache("x", 5), bytes(range(100))
    cache.put("a", data)
    (file,) = files(home)
    raw = bytearray(file.read_bytes())
    if seed == 0:
        raw = bytearray()
    elif chance.random() < 0.5:
        raw = raw[: chance.randrange(len(raw))]
    else:
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    file.write_bytes(raw)
    assert cache.get("a") is None
    cache.put("a", data)
    assert cache.get("a") == data


@NO_FILES
def test_what_is_no_file_is_no_entry(home, what):
    cache = Cache("x", 5)
    cache.put("a", b"1")
    in_the_way(files(home)[0], what)
    assert cache.get("a") is None
    cache.put("a", b"2")
    assert cache.get("a") == (None if what == "folder" else b"2"), "a folder is somebody's: it is left there"


def test_an_entry_under_another_name_is_none(home):
    cache = Cache("x", 5)
    cache.put("a", b"1")
    cache.put("b", b"2")
    one, other = files(home)
    other.write_bytes(one.read_bytes())
    assert sorted(filter(None, (cache.get("a"), cache.get("b")))) in ([b"1"], [b"2"])


def test_what_was_not_used_for_longest_goes_first_and_so_do_abandoned_halves(home):
    cache = Cache("x", 3)
    for number, key in enumerate("abcd"):
        cache.put(key, key.encode())
        os.utime(cache._path(key), (number, number))
    assert cache.get("b") == b"b"
    folder = home / "cache" / "x"
    (folder / ".old.part").write_bytes(b"half")
    (folder / ".new.part").write_bytes(b"half")
    os.utime(folder / ".old.part", (0, 0))
    cache.put("e", b"e")
    assert [cache.get(key) for key in "abcde"] == [None, b"b", None, b"d", b"e"]
    assert [file.name for file in files(home) if file.suffix == ".part"] == [".new.part"]


def fill(start, results):
    cache, wrong = Cache("x", 4), []
    end = time.monotonic() + 3
    number = start
    while time.monotonic() < end:
        number += 1
        key = f"{number % 40}"
        try:
            cache.put(key, key.encode() * 1000)
            if cache.get(key) not in (None, key.encode() * 1000):
                wrong.append(key)
        except Exception as error:
            wrong.append(repr(error))
            break
    results.put(wrong)


def test_four_processes_evict_at_once(home):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=fill, args=(7 * number, results)) for number in range(4)]
    for worker in workers:
        worker.start()
    assert [results.get(timeout=120) for _ in workers] == [[]] * 4
    for worker in workers:
        worker.join(30)
    assert len(files(home)) <= 8


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_refuses_costs_the_cache_and_leaves_no_halves(home, monkeypatch, code):
    cache = Cache("x", 5)
    cache.put("a", b"1")

    def refuse(*args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.replace", refuse)
    cache.put("b", b"2")
    assert cache.get("b") is None and cache.get("a") == b"1" and len(files(home)) == 1


def test_no_folder_is_no_cache(home):
    (home / "cache").write_text("in the way")
    Cache("x", 5).put("a", b"1")
    assert Cache("x", 5).get("a") is None


@pytest.mark.parametrize("damage", [b"", b"\n", b"cut", b"\xff" * 200], ids=["empty", "newline", "short", "noise"])
def test_damaged_kernels_are_compiled_disassembled_and_translated_again(home, damage):
    """Every file of every cache at once; the counters do not change."""

    def all_of_it():
        compiled = compile_source(SOURCE)
        data = np.ones(32, np.float32)
        outcome = simulate(compiled, (1, 1, 1), (32, 1, 1), [data])
        assert (data == 2).all()
        return compiled, compiled.sass, dict(outcome.counters)

    first = all_of_it()
    caches = [home / "cache" / name for name in ("kernels", "native")]
    kept = [file for folder in caches if folder.exists() for file in folder.iterdir()]
    assert len(kept) >= 2
    for file in kept:
        file.write_bytes(file.read_bytes()[:40] if damage == b"cut" else damage)
    again = all_of_it()
    assert again == first
    assert compiled_module.load(again[0].key) == first[0]


def test_a_shared_cache_is_read_and_never_written(home, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    monkeypatch.setenv("GEMM_LADDER_HOME", str(shared))
    Cache("x", 5).put("a", b"1")
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("GEMM_LADDER_SHARED_CACHE", str(shared / "cache"))
    cache, before = Cache("x", 5), {path: path.stat().st_mtime_ns for path in files(shared)}
    assert cache.get("a") == b"1"
    cache.put("b", b"2")
    cache.put("a", b"3")
    assert (cache.get("a"), cache.get("b")) == (b"3", b"2"), "one's own comes first"
    assert before == {path: path.stat().st_mtime_ns for path in files(shared)}


@pytest.mark.parametrize("folder", ["", "x"])
def test_a_shared_cache_that_others_can_write_to_is_not_read(home, tmp_path, monkeypatch, folder):
    Cache("x", 5).put("a", b"1")
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("GEMM_LADDER_SHARED_CACHE", str(home / "cache"))
    assert Cache("x", 5).get("a") == b"1"
    (home / "cache" / folder).chmod(0o775)
    with pytest.warns(UserWarning, match="GEMM_LADDER_SHARED_CACHE=.* is not used: others than its owner may write to it"):
        assert Cache("x", 5).get("a") is None


def test_a_shared_cache_that_is_not_there_is_named(home, tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_SHARED_CACHE", str(tmp_path / "nowhere"))
    with pytest.warns(UserWarning, match="nowhere is not used: it cannot be read .No such file or directory."):
        assert Cache("x", 5).get("a") is None
