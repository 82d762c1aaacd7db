"""Files as a whole or not at all: what is no file is refused, and of several processes one at a time writes."""

from __future__ import annotations

import os

import pytest

from helpers.files import one_at_a_time, read_whole, write_whole


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
