"""Files as a whole or not at all: what is no file is refused, and of several processes one at a time writes."""

from __future__ import annotations

import os
import stat

import pytest

from helpers.files import LARGEST, one_at_a_time, read_whole, write_export, write_whole


def in_the_way(path, what):
    """Put something at `path` that is no file."""
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if what == "device" else path)


NO_FILES = pytest.mark.parametrize("what", ["pipe", "folder", "device", "link to itself"])


@NO_FILES
def test_what_is_no_file_is_refused_at_once(tmp_path, what):
    write_whole(tmp_path / "x", b"data")
    assert read_whole(tmp_path / "x") == b"data"
    in_the_way(tmp_path / "x", what)
    with pytest.raises(OSError):
        read_whole(tmp_path / "x")
    with one_at_a_time(tmp_path / "x", 0.1):
        pass


def test_one_has_its_turn_and_the_next_after_it(tmp_path):
    with one_at_a_time(tmp_path / "new" / "turn", 0.1):
        with pytest.raises(TimeoutError, match="another process"), one_at_a_time(tmp_path / "new" / "turn", 0.1):
            pass
    with one_at_a_time(tmp_path / "new" / "turn", 0.1):
        pass


def test_an_export_replaces_one_of_its_kind_and_nothing_else(tmp_path):
    path = tmp_path / "new" / "mine.json"
    for before in (None, b"", b"{kind: 1, old}"):
        if before is not None:
            path.write_bytes(before)
        write_export(path, b"{kind: 1, new}", b"{kind: 1")
        assert path.read_bytes() == b"{kind: 1, new}"
    path.write_bytes(b"my notes")
    with pytest.raises(FileExistsError, match="name another file, or remove it first"):
        write_export(path, b"{kind: 1, new}", b"{kind: 1")
    assert path.read_bytes() == b"my notes"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_says_who_reads_a_file_unless_it_is_private(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "public", b"data")
        write_export(tmp_path / "export", b"data", b"data")
        write_whole(tmp_path / "mine", b"data", private=True)
        write_export(tmp_path / "public", b"data", b"data", private=True)
        write_whole(tmp_path / "mine again", b"data")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"public": 0o600, "export": mode, "mine": 0o600, "mine again": mode}


@pytest.mark.parametrize(("what", "said"), [("folder", "it is a folder"), ("device", "no file that can be read"), ("large", "gigabyte")])
def test_it_is_said_why_a_file_is_none(tmp_path, what, said):
    if what == "large":
        with open(tmp_path / "x", "wb") as file:
            file.truncate(LARGEST + 1)
    else:
        in_the_way(tmp_path / "x", what)
    with pytest.raises(OSError, match=said):
        read_whole(tmp_path / "x")


@NO_FILES
def test_an_export_goes_to_a_file(tmp_path, what):
    in_the_way(tmp_path / "x", what)
    with pytest.raises(OSError):
        write_export(tmp_path / "x", b"data", b"data")
