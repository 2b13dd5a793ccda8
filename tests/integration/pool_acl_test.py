"""Tests POSIX access lists (acl(5)) on mounts of a real pool. The page docs/guide/posix.md says what holds for them."""

import contextlib
import errno
import os
import stat
import struct
import subprocess
import sys

import pytest
from conftest import restart_manager
from file_systems import access_list
from processes import PATIENCE, wait_until

ACCESS = "system.posix_acl_access"
DEFAULT = "system.posix_acl_default"
OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS = 1, 2, 4, 8, 16, 32
FRIEND, STRANGER = 2001, 2002
FRIENDS = 3001

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as other users")


def for_friend(rights, group=0, mask=7, others=0, owner=7):
    return access_list((OWNER, owner), (USER, rights, FRIEND), (OWNING_GROUP, group), (MASK, mask), (OTHERS, others))


def list_of(path, name=ACCESS):
    try:
        return os.getxattr(path, name)
    except OSError as error:
        assert error.errno == errno.ENODATA
        return None


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def try_as(user, code, *arguments, groups=()):
    """Runs Python as another user. Returns the errno of its OSError, or 0."""
    text = ("import os, sys\n"
            f"os.setgroups({list(groups)!r}); os.setgid({user}); os.setuid({user})\n"
            f"try:\n    {code}\nexcept OSError as error:\n    sys.exit(error.errno)")
    return subprocess.run([sys.executable, "-c", text, *map(str, arguments)], check=False, timeout=60 * PATIENCE).returncode


READ = "os.close(os.open(sys.argv[1], os.O_RDONLY))"
WRITE = "os.close(os.open(sys.argv[1], os.O_WRONLY))"


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture(params=["leased", "stored"])
def here(pool, request):
    """A folder of a mount for all users, which holds its directories, or stores each name."""
    pool.folder.chmod(0o755)
    pool.up("--allow-other", benefactors=1, memory="96M", drain=False)
    mount = pool.mount if request.param == "leased" else pool.mount_by_hand("there", "--allow-other", "--names", "stored")
    folder = mount / "here"
    folder.mkdir(mode=0o755)
    for number in range(40):  # the eighth change within a second asks for a lease
        (folder / f"x{number}").touch()
        (folder / f"x{number}").unlink()
    return folder


def test_a_list_gives_rights_and_takes_them(here):
    file = here / "file"
    file.write_bytes(b"x")
    file.chmod(0o600)
    assert try_as(FRIEND, READ, file) == errno.EACCES
    os.setxattr(file, ACCESS, access_list((OWNER, 6), (USER, 4, FRIEND), (OWNING_GROUP, 0), (GROUP, 6, FRIENDS), (MASK, 6), (OTHERS, 0)))
    assert mode_of(file) == 0o660
    assert try_as(FRIEND, READ, file) == 0
    assert try_as(FRIEND, WRITE, file) == errno.EACCES
    assert try_as(STRANGER, READ, file) == errno.EACCES
    assert try_as(STRANGER, WRITE, file, groups=[FRIENDS]) == 0
    # chmod(2) changes the mask, which limits users and groups.
    file.chmod(0o640)
    assert list_of(file) == access_list((OWNER, 6), (USER, 4, FRIEND), (OWNING_GROUP, 0), (GROUP, 6, FRIENDS), (MASK, 4), (OTHERS, 0))
    assert try_as(STRANGER, WRITE, file, groups=[FRIENDS]) == errno.EACCES
    assert try_as(STRANGER, READ, file, groups=[FRIENDS]) == 0
    file.chmod(0o600)
    assert try_as(FRIEND, READ, file) == errno.EACCES
    # A list that takes away what the mode gives.
    file.chmod(0o644)
    os.setxattr(file, ACCESS, for_friend(0, group=4, mask=4, others=4, owner=6))
    assert mode_of(file) == 0o644
    assert try_as(FRIEND, READ, file) == errno.EACCES
    assert try_as(STRANGER, READ, file) == 0
    os.removexattr(file, ACCESS)
    assert list_of(file) is None
    assert try_as(FRIEND, READ, file) == 0
    # A list of three entries is a mode.
    os.setxattr(file, ACCESS, access_list((OWNER, 7), (OWNING_GROUP, 5), (OTHERS, 1)))
    assert mode_of(file) == 0o751
    assert list_of(file) is None


def test_lists_are_listed_and_removed(here):
    folder = here / "folder"
    folder.mkdir()
    assert os.listxattr(folder) == []
    with pytest.raises(OSError) as absent:
        os.getxattr(folder, DEFAULT)
    assert absent.value.errno == errno.ENODATA
    os.setxattr(folder, ACCESS, for_friend(7))
    os.setxattr(folder, DEFAULT, for_friend(5))
    assert sorted(os.listxattr(folder)) == [ACCESS, DEFAULT]
    text = subprocess.run(["getfacl", "-c", "-n", "-p", folder], check=True, capture_output=True, text=True).stdout
    assert f"user:{FRIEND}:rwx" in text
    assert f"default:user:{FRIEND}:r-x" in text
    os.removexattr(folder, DEFAULT)
    assert list_of(folder, DEFAULT) is None
    assert list_of(folder) == for_friend(7)
    subprocess.run(["setfacl", "-b", folder], check=True)
    assert os.listxattr(folder) == []
    assert mode_of(folder) == 0o700


def test_an_invalid_list_is_refused(here):
    file = here / "file"
    file.touch(mode=0o644)
    wrong = [
        access_list((OWNER, 6), (OTHERS, 4)),
        access_list((OWNER, 6), (USER, 6, FRIEND), (OWNING_GROUP, 4), (OTHERS, 0)),
        access_list((OWNER, 6), (OWNING_GROUP, 4), (USER, 6, FRIEND), (MASK, 6), (OTHERS, 0)),
        access_list((OWNER, 9), (OWNING_GROUP, 4), (OTHERS, 0)),
        struct.pack("<I", 2) + b"abc",
    ]
    for value in wrong:
        with pytest.raises(OSError) as refused:
            os.setxattr(file, ACCESS, value)
        assert refused.value.errno == errno.EINVAL
    with pytest.raises(OSError) as refused:
        os.setxattr(file, DEFAULT, for_friend(7))
    assert refused.value.errno in (errno.EACCES, errno.EINVAL)
    assert mode_of(file) == 0o644
    assert os.listxattr(file) == []
    assert try_as(STRANGER, "os.setxattr(sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3]))", file, ACCESS, for_friend(7).hex()) == errno.EPERM


def test_what_is_made_in_a_directory_gets_its_default_list(here):
    folder = here / "folder"
    folder.mkdir(mode=0o755)
    with umask(0o077):
        (folder / "before").touch(mode=0o666)
        assert mode_of(folder / "before") == 0o600
        os.setxattr(folder, DEFAULT, for_friend(6, group=5))
        assert mode_of(folder) == 0o755
        (folder / "file").touch(mode=0o666)
        (folder / "below").mkdir(mode=0o777)
        os.mkfifo(folder / "fifo", 0o640)
        os.mknod(folder / "node", 0o666 | stat.S_IFREG)
        os.symlink("file", folder / "link")
        (folder / "written").write_bytes(b"bytes")
        for number in range(30):
            (folder / f"many{number}").touch(mode=0o666)
        (folder / "below" / "file").touch(mode=0o666)
        (here / "outside").touch(mode=0o666)
    file_list = for_friend(6, group=5, mask=6, owner=6)
    for name in ("file", "node", "written", "below/file", *(f"many{number}" for number in range(30))):
        assert (mode_of(folder / name), list_of(folder / name)) == (0o660, file_list), name
        assert list_of(folder / name, DEFAULT) is None
    assert mode_of(folder / "fifo") == 0o640
    assert list_of(folder / "fifo") == for_friend(6, group=5, mask=4, owner=6)
    assert mode_of(folder / "below") == 0o770
    assert list_of(folder / "below") == for_friend(6, group=5)
    assert list_of(folder / "below", DEFAULT) == for_friend(6, group=5)
    assert stat.S_IMODE(os.lstat(folder / "link").st_mode) == 0o777
    assert mode_of(here / "outside") == 0o600
    assert list_of(folder / "before") is None
    with umask(0o077):
        os.removexattr(folder, DEFAULT)
        (folder / "after").touch(mode=0o666)
    assert mode_of(folder / "after") == 0o600
    assert list_of(folder / "after") is None


def test_cp_keeps_lists_and_renames_and_links_do(here):
    file = here / "file"
    file.write_bytes(b"x")
    os.setxattr(file, ACCESS, for_friend(4, mask=4, owner=6))
    assert mode_of(file) == 0o640
    subprocess.run(["cp", "-p", file, here / "copy"], check=True)
    assert (mode_of(here / "copy"), list_of(here / "copy")) == (0o640, list_of(file))
    (here / "plain").write_bytes(b"x")
    (here / "plain").chmod(0o604)
    subprocess.run(["cp", "-p", here / "plain", here / "plain copy"], check=True)
    assert mode_of(here / "plain copy") == 0o604
    os.link(file, here / "second")
    os.rename(file, here / "moved")
    for name in ("second", "moved"):
        assert list_of(here / name) == for_friend(4, mask=4, owner=6)
    os.setxattr(here / "second", ACCESS, for_friend(6, mask=6, owner=6))
    assert list_of(here / "moved") == for_friend(6, mask=6, owner=6)
    assert mode_of(here / "moved") == 0o660
    # Writing keeps the list; a new version has it, too.
    (here / "moved").write_bytes(b"other bytes")
    assert list_of(here / "second") == for_friend(6, mask=6, owner=6)


def test_a_file_that_is_not_committed_yet_has_its_list(here):
    fd = os.open(here / "file", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"bytes")
    os.setxattr(fd, ACCESS, for_friend(4, mask=4, owner=6))
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    assert os.getxattr(fd, ACCESS) == for_friend(4, mask=4, owner=6)
    os.fchmod(fd, 0o600)
    assert os.getxattr(fd, ACCESS) == for_friend(4, mask=0, owner=6)
    os.close(fd)
    assert list_of(here / "file") == for_friend(4, mask=0, owner=6)
    assert try_as(FRIEND, READ, here / "file") == errno.EACCES


def test_a_list_takes_the_set_group_id_bit_from_those_outside_the_group(here):
    file = here / "file"
    file.touch()
    os.chown(file, FRIEND, FRIENDS)
    file.chmod(0o2755)
    set_list = "os.setxattr(sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3]))"
    value = access_list((OWNER, 7), (OWNING_GROUP, 5), (OTHERS, 5))
    assert try_as(FRIEND, set_list, file, ACCESS, value.hex(), groups=[FRIENDS]) == 0
    assert mode_of(file) == 0o2755
    assert try_as(FRIEND, set_list, file, ACCESS, value.hex()) == 0
    assert mode_of(file) == 0o755
    file.chmod(0o2755)
    assert try_as(FRIEND, set_list, file, ACCESS, for_friend(7, group=5, others=5).hex()) == 0
    assert mode_of(file) == 0o775


def test_another_mount_checks_lists_and_a_lease_does_not_hide_them(pool):
    pool.folder.chmod(0o755)
    pool.up("--allow-other", benefactors=1, memory="96M", drain=False)
    there = pool.mount_by_hand("there", "--allow-other")
    folder = pool.mount / "folder"
    folder.mkdir()
    for number in range(40):
        (folder / f"f{number}").touch(mode=0o644)
    # The other mount asks about a directory that this mount may hold.
    os.setxattr(there / "folder" / "f1", ACCESS, for_friend(0, group=4, mask=4, others=4, owner=6))
    wait_until(lambda: list_of(folder / "f1") is not None, "the list on the first mount")
    assert try_as(FRIEND, READ, folder / "f1") == errno.EACCES
    assert try_as(STRANGER, READ, folder / "f1") == 0
    os.setxattr(there / "folder", DEFAULT, for_friend(6))
    wait_until(lambda: list_of(folder, DEFAULT) is not None, "the default list on the first mount")
    with umask(0o077):
        for number in range(40):
            (folder / f"g{number}").touch(mode=0o666)
    for number in range(40):
        assert list_of(there / "folder" / f"g{number}") == for_friend(6, mask=6, owner=6)


def test_lists_outlive_the_manager_and_the_drain_gives_a_group_nothing_more(pool):
    pool.folder.chmod(0o755)
    pool.up("--allow-other", benefactors=2, memory="96M")
    folder = pool.mount / "folder"
    folder.mkdir(mode=0o755)
    os.setxattr(folder, DEFAULT, for_friend(7, group=1))
    (folder / "file").write_bytes(b"x" * 100000)
    (folder / "later").write_bytes(b"x")
    (folder / "later").chmod(0o600)
    assert mode_of(folder / "file") == 0o660
    pool.stdchk("drain", "--wait", "--timeout", 45, pool.mount)
    drained = pool.drain / "folder"
    assert mode_of(drained / "file") == 0o600
    assert list_of(folder / "file") == for_friend(7, group=1, mask=6, owner=6)
    # A list that is set after the drain changes the drained mode.
    os.setxattr(folder / "later", ACCESS, for_friend(7, group=4, mask=7, others=4, owner=6))
    assert mode_of(folder / "later") == 0o674
    wait_until(lambda: mode_of(drained / "later") == 0o644, "the mode in the drain directory")
    pool.kill("manager")
    restart_manager(pool)
    assert list_of(folder, DEFAULT) == for_friend(7, group=1)
    assert list_of(folder / "later") == for_friend(7, group=4, mask=7, others=4, owner=6)
    (folder / "new").touch(mode=0o666)
    assert list_of(folder / "new") == for_friend(7, group=1, mask=6, owner=6)
