"""Tests open readers of a file that is written again: `tail -F` shows new bytes, and other readers keep their version."""

import contextlib
import os
import subprocess
import time

import pytest
from processes import PATIENCE, wait_until


@contextlib.contextmanager
def tail(path, output):
    """Runs `tail -F` of a file from its first line, into the file `output`."""
    command = ["tail", "-F", "-n", "+1", "-s", "0.2", "--max-unchanged-stats=2", path]
    with open(output, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(20)


def append(path, text):
    with open(path, "a", encoding="ascii") as file:
        file.write(text)


@pytest.mark.parametrize("where", ["the writer's mount", "another mount"])
def test_tail_shows_what_is_appended_and_what_replaces_the_file(pool, where):
    pool.up(benefactors=2, memory="64M", drain=False)
    reader = pool.mount if where == "the writer's mount" else pool.mount_by_hand("other")
    path, output = pool.mount / "log", pool.folder / "out"
    # Longer than a page, so that the appends change the middle of a page and of a chunk.
    expected = "".join(f"line {i}\n" for i in range(1000))
    path.write_text(expected)
    with tail(reader / "log", output):
        wait_until(lambda: output.read_text() == expected, "the first lines")
        for i in range(5):
            append(path, f"appended {i}\n")
            expected += f"appended {i}\n"
            wait_until(lambda: output.read_text() == expected, f"append {i}", 15 * PATIENCE)
        # A writer that stays open and syncs, as loggers do.
        with open(path, "a", encoding="ascii") as file:
            for i in range(3):
                file.write(f"synced {i}\n")
                file.flush()
                os.fsync(file.fileno())
                expected += f"synced {i}\n"
                wait_until(lambda: output.read_text() == expected, f"sync {i}", 15 * PATIENCE)
        # Replaces the file, as logrotate does.
        (pool.mount / "new").write_text("a new file\n")
        os.replace(pool.mount / "new", path)
        expected += "a new file\n"
        wait_until(lambda: output.read_text() == expected, "the new file", 15 * PATIENCE)
        append(path, "and more\n")
        expected += "and more\n"
        wait_until(lambda: output.read_text() == expected, "an append to the new file", 15 * PATIENCE)


def test_tail_that_began_beside_a_writer_goes_on_behind_it(pool):
    pool.up(benefactors=2, memory="64M", drain=False)
    path, output = pool.mount / "log", pool.folder / "out"
    with contextlib.ExitStack() as running:
        with open(path, "w", encoding="ascii") as file:
            file.write("first\n")
            file.flush()
            os.fsync(file.fileno())
            running.enter_context(tail(path, output))
            wait_until(lambda: output.read_text() == "first\n", "the first line")
        append(path, "second\n")
        wait_until(lambda: output.read_text() == "first\nsecond\n", "the append", 15 * PATIENCE)


def test_a_reader_keeps_its_version_of_a_file_that_is_written_anew(pool):
    pool.up(benefactors=2, memory="64M", drain=False)
    other = pool.mount_by_hand("other")
    path = pool.mount / "state"
    old, new = b"old " * 5000, b"new " * 9000
    path.write_bytes(old)
    readers = [os.open(where / "state", os.O_RDONLY) for where in (pool.mount, other)]
    try:
        assert [os.pread(reader, 10, 0) for reader in readers] == [old[:10]] * 2
        path.write_bytes(new)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for reader in readers:
                assert os.fstat(reader).st_size == len(old)
                assert os.pread(reader, len(new), 0) == old
            time.sleep(0.1)
        # An append to that does not bring the readers to the new version, either.
        append(path, "more")
        time.sleep(3)
        for reader in readers:
            assert os.fstat(reader).st_size == len(old)
            assert os.pread(reader, len(new), 0) == old
        assert (other / "state").read_bytes() == new + b"more"
    finally:
        for reader in readers:
            os.close(reader)


def test_a_file_that_a_reader_follows_shows_the_time_of_its_newest_version(pool):
    pool.up(benefactors=2, memory="64M", drain=False)
    here, there = pool.mount / "log", pool.mount_by_hand("other") / "log"
    there.write_text("first\n")
    wait_until(here.exists, "the file on the other mount")
    with open(here, "rb", buffering=0) as reader:
        assert reader.read() == b"first\n"
        append(there, "second\n")
        wait_until(lambda: os.fstat(reader.fileno()).st_size == 13, "the append", 15 * PATIENCE)
        assert reader.read() == b"second\n"
    wait_until(lambda: here.stat().st_mtime_ns == there.stat().st_mtime_ns, "the time of the append")
    assert here.read_text() == "first\nsecond\n"
