"""Tests files without a name (open(2), O_TMPFILE) on mounts of a real pool."""

import ctypes
import errno
import os
import stat
import struct
import tempfile

import pytest
from conftest import restart_manager
from file_systems import access_list
from processes import wait_until

MIB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400  # linux/fcntl.h


def unnamed(folder, flags=os.O_RDWR, mode=0o640):
    return os.open(folder, os.O_TMPFILE | flags, mode)


def give_name(fd, path):
    """linkat(2), as its man page has it for callers without CAP_DAC_READ_SEARCH."""
    if LIBC.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, os.fsencode(path), AT_SYMLINK_FOLLOW) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))


@pytest.fixture(params=["leased", "stored"])
def here(pool, request):
    """A folder of a mount that holds its directories, or stores each name."""
    pool.up(benefactors=1, memory="96M", drain=False)
    mount = pool.mount if request.param == "leased" else pool.mount_by_hand("there", "--names", "stored")
    folder = mount / "here"
    folder.mkdir()
    for number in range(40):  # the eighth change within a second asks for a lease
        (folder / f"x{number}").touch()
        (folder / f"x{number}").unlink()
    return folder


def test_a_file_without_a_name_is_written_and_read_until_its_close(here):
    fd = unnamed(here)
    assert os.fstat(fd).st_nlink == 0
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    os.write(fd, b"x" * MIB)
    os.fsync(fd)
    os.fchmod(fd, 0o600)
    assert os.pread(fd, 2 * MIB, 0) == b"x" * MIB
    assert (os.fstat(fd).st_size, stat.S_IMODE(os.fstat(fd).st_mode)) == (MIB, 0o600)
    assert os.listdir(here) == []
    os.close(fd)
    here.rmdir()


def test_a_folder_with_such_a_file_can_be_removed(here):
    fd = unnamed(here)
    here.rmdir()
    os.write(fd, b"bytes")
    assert os.pread(fd, 10, 0) == b"bytes"
    with pytest.raises(FileNotFoundError):
        give_name(fd, here / "name")
    os.close(fd)


def test_link_gives_it_a_name_with_all_its_bytes(here):
    fd = unnamed(here)
    os.write(fd, b"x" * MIB)
    give_name(fd, here / "name")
    assert os.fstat(fd).st_nlink == 1
    assert (here / "name").stat().st_ino == os.fstat(fd).st_ino
    assert (here / "name").read_bytes() == b"x" * MIB
    os.write(fd, b"more")
    os.link(here / "name", here / "second")
    os.close(fd)
    assert (here / "second").read_bytes() == b"x" * MIB + b"more"
    assert sorted(os.listdir(here)) == ["name", "second"]
    assert (here / "name").stat().st_nlink == 2


def test_a_name_that_exists_is_not_replaced(here):
    (here / "name").write_bytes(b"old")
    fd = unnamed(here)
    os.write(fd, b"new")
    with pytest.raises(FileExistsError):
        give_name(fd, here / "name")
    assert (here / "name").read_bytes() == b"old"
    give_name(fd, here / "other")
    os.close(fd)
    assert (here / "other").read_bytes() == b"new"


def test_a_file_that_may_get_no_name_gets_none(here):
    fd = unnamed(here, os.O_RDWR | os.O_EXCL)
    with pytest.raises(FileNotFoundError):
        give_name(fd, here / "name")
    os.close(fd)
    with tempfile.TemporaryFile(dir=here) as file:  # O_TMPFILE with O_EXCL
        file.write(b"bytes")
        file.seek(0)
        assert file.read() == b"bytes"
    assert os.listdir(here) == []


def test_it_gets_the_default_list_of_its_directory(here):
    entries = [(1, 7, -1), (2, 7, 2001), (4, 5, -1), (16, 7, -1), (32, 0, -1)]
    os.setxattr(here, "system.posix_acl_default", access_list(*entries))
    fd = unnamed(here, mode=0o666)
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o660
    os.write(fd, b"x")
    give_name(fd, here / "name")
    os.close(fd)
    assert stat.S_IMODE((here / "name").stat().st_mode) == 0o660
    assert struct.pack("<HHi", 16, 6, -1) in os.getxattr(here / "name", "system.posix_acl_access")


def test_others_see_the_name_and_the_next_manager_has_the_file(pool):
    pool.up(benefactors=2, memory="96M", drain=False)
    there = pool.mount_by_hand("there")
    lost = unnamed(pool.mount)
    os.write(lost, b"lost")
    fd = unnamed(pool.mount)
    os.write(fd, b"x" * 100000)
    os.fsync(fd)  # the kernel may have kept the bytes so far
    give_name(fd, pool.mount / "name")
    wait_until((there / "name").exists, "the name on the other mount")
    assert (there / "name").read_bytes() == b"x" * 100000
    os.close(fd)
    os.close(lost)
    pool.kill("manager")
    restart_manager(pool)
    assert os.listdir(pool.mount) == ["name"]
    assert (pool.mount / "name").read_bytes() == b"x" * 100000


def test_a_file_without_a_name_outlives_the_manager_while_it_is_open(pool):
    pool.up(benefactors=2, memory="96M", drain=False)
    fd = unnamed(pool.mount)
    os.write(fd, b"before")
    os.fsync(fd)  # otherwise the start of a process, which closes a copy of the descriptor, waits for the manager
    pool.kill("manager")
    restart_manager(pool)
    os.write(fd, b" and after")
    give_name(fd, pool.mount / "name")
    os.close(fd)
    assert (pool.mount / "name").read_bytes() == b"before and after"


def test_closed_files_without_a_name_free_their_space(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    for number in range(10):
        fd = unnamed(pool.mount)
        try:
            os.write(fd, os.urandom(16 * MIB))
            os.fsync(fd)
        except OSError as error:
            assert error.errno != errno.ENOSPC, number
            raise
        os.close(fd)
        wait_until(lambda: os.statvfs(pool.mount).f_bfree * os.statvfs(pool.mount).f_frsize > 32 * MIB, "free space")
