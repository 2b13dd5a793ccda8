"""Tests that draining preserves files: holes when writing and reading back, and folders that their owner cannot write."""

import errno
import os
import pathlib
import stat
import time

from conftest import Pool
from processes import programs_for_all, run

MIB = 1 << 20
TIB = 1 << 40
USER = 65534
PIECES = {0: b"begin", 3 * TIB // 8 + 12345: b"m" * 70_000, TIB - MIB: b"towards the end"}


def write_pieces(path):
    """A file of 1 TiB with three pieces and a hole at its end."""
    with open(path, "wb") as file:
        for offset, content in PIECES.items():
            file.seek(offset)
            file.write(content)
        file.truncate(TIB)


def data_ranges(path):
    """Returns the ranges of data that lseek(2) finds."""
    ranges, end = [], 0
    with open(path, "rb") as file:
        while True:
            try:
                begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                assert error.errno == errno.ENXIO
                return ranges
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            ranges.append((begin, end))


def has_pieces(path):
    with open(path, "rb") as file:
        for offset, content in PIECES.items():
            file.seek(offset)
            if file.read(len(content) + 4096) != content + bytes(4096):
                return False
    return path.stat().st_size == TIB


def test_holes_stay_holes_in_a_new_pool_in_what_is_staged_in_and_in_what_is_drained(pool, tmp_path):
    pool.drain.mkdir()
    write_pieces(pool.drain / "sparse")
    pool.up(benefactors=1, memory="64M")
    assert has_pieces(pool.mount / "sparse")
    assert data_ranges(pool.mount / "sparse") == data_ranges(pool.drain / "sparse")
    pool.down()
    other = Pool(tmp_path)
    try:
        other.up(benefactors=1, memory="64M")
        began = time.monotonic()
        other.stdchk("stage-in", "--all", "--to", other.mount, pool.drain)
        assert time.monotonic() - began < 20
        assert has_pieces(other.mount / "sparse")
        run("cp", "--sparse=auto", other.mount / "sparse", other.mount / "copy", seconds=60)
        assert has_pieces(other.mount / "copy")
        (other.mount / "copy").unlink()
        other.stdchk("drain", "--wait", "--timeout", 45, other.mount)
        assert has_pieces(other.drain / "sparse")
        assert (other.drain / "sparse").stat().st_blocks * 512 < MIB
        assert other.stdchk("verify", other.drain).returncode == 0
        other.down()
    finally:
        other.clean()


def test_a_read_only_folder_of_a_plain_user_is_drained_and_stays_read_only(pool):
    pool.folder.chmod(0o755)
    programs = programs_for_all(pool.folder / "bin")
    home = pool.folder / "home"
    for path in (pool.runtime, home):
        path.mkdir(exist_ok=True)
        os.chown(path, USER, USER)
    pool.mount, pool.drain = home / "mount", home / "drain"
    pool.environment["STDCHK_BIN"] = str(programs)
    as_user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")

    def stdchk(*words):
        return run(*as_user, programs / "stdchk", *words, env=pool.environment)

    stdchk("up", "--no-mount", "--mount", pool.mount, "--benefactors", 1, "--memory", "64M", "--drain", pool.drain)
    # Root mounts the pool of the user: the user may not open /dev/fuse on every machine.
    secret = pool.folder / "roots.secret"
    secret.touch(0o600)
    secret.write_bytes(pathlib.Path(pool.record["secret_file"]).read_bytes())
    point = pool.mount_of(pool.record["manager_address"], secret, "roots", "--allow-other")
    os.chown(point, USER, USER)

    def shell(text):
        return run(*as_user, "sh", "-ec", f"cd {point}; {text}", env=pool.environment)

    try:
        shell("mkdir -p kept/inner; echo one >kept/one; echo two >kept/inner/two; ln -s one kept/link; "
              "chmod 555 kept/inner kept")
        stdchk("drain", "--wait", "--timeout", 45, pool.mount)
        there = pool.drain / "kept"
        assert (there / "one").read_text() == "one\n" and (there / "inner" / "two").read_text() == "two\n"
        assert os.readlink(there / "link") == "one"
        for folder in (there, there / "inner"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o555
        assert stdchk("safe", pool.mount / "kept").returncode == 0
        # The owner makes the folder writable for a while, and replaces the file.
        shell("chmod 755 kept; echo three >kept/one; chmod 555 kept")
        stdchk("drain", "--wait", "--timeout", 45, pool.mount)
        assert (there / "one").read_text() == "three\n"
        assert stat.S_IMODE(there.stat().st_mode) == 0o555
    finally:
        stdchk("down", pool.mount)


def error_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def test_names_that_could_not_be_drained_are_refused_at_once(pool):
    pool.up(benefactors=1, memory="64M")
    (pool.mount / "folder").mkdir()
    (pool.mount / "file").write_bytes(b"x")
    for folder in (pool.mount, pool.mount / "folder"):
        for name in (".stdchk-manifest", ".stdchk-manifest.1", ".stdchk-policy", ".stdchk-lease", ".stdchk-drain",
                     ".stdchk-anything"):
            place = folder / name
            assert error_of(place.write_bytes, b"x") == errno.EINVAL
            assert error_of(place.mkdir) == errno.EINVAL
            assert error_of(os.symlink, "x", place) == errno.EINVAL
            assert error_of(os.link, pool.mount / "file", place) == errno.EINVAL
            assert error_of(os.rename, pool.mount / "file", place) == errno.EINVAL
            assert not place.exists()
    assert error_of((pool.mount / "folder" / ".stdchk-restart-1").mkdir) == errno.EINVAL
    (pool.mount / ".stdchk-restart-1").mkdir()  # as stdchk restart makes it
    (pool.mount / ".stdchk-restart-1").rmdir()
    (pool.mount / ".stdchk").mkdir()
    # Paths of relative names may be longer than PATH_MAX, but no program of the pool could reach them.
    here = os.open(pool.mount, os.O_RDONLY)
    length = len(str(pool.drain))
    while length + 1 + 200 <= 4096:
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, length = inner, length + 1 + 200
    fits = "f" * (4096 - length - 1)
    assert error_of(lambda: os.mkdir(fits + "f", dir_fd=here)) == errno.ENAMETOOLONG
    assert error_of(lambda: os.open(fits + "f", os.O_CREAT | os.O_WRONLY, dir_fd=here)) == errno.ENAMETOOLONG
    # The top directory gets no longer name: a path below it has the greatest length.
    os.mkdir(fits, dir_fd=here)
    top = pool.mount / ("d" * 200)
    assert error_of(os.rename, top, pool.mount / ("d" * 201)) == errno.ENAMETOOLONG
    os.rename(top, pool.mount / ("e" * 200))
    os.rename(pool.mount / ("e" * 200), top)
    os.rmdir(fits, dir_fd=here)
    with os.fdopen(os.open(fits[:-5], os.O_CREAT | os.O_WRONLY, dir_fd=here), "wb") as file:
        file.write(b"deep")
    os.close(here)
    pool.stdchk("drain", "--wait", "--timeout", 45, pool.mount)
    assert pool.stdchk("safe", pool.mount).returncode == 0
