"""Tests calls that the kernel answers without asking the mount: leases, events and file handles. Each test shows a row of
the table of docs/guide/posix.md."""

import contextlib
import ctypes
import errno
import fcntl
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

import pytest
from conftest import drop_caches, restart_manager
from processes import BIN, PATIENCE, wait_until

MIB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
EVENT = struct.Struct("iIII")  # inotify(7): watch, mask, cookie, length of the name
MASKS = {0x2: "modify", 0x8: "close_write", 0x40: "moved_from", 0x80: "moved_to", 0x100: "create", 0x200: "delete"}
HANDLE_BYTES_MAX = 128


def open_elsewhere(path):
    """Another process opens the file for writing, without waiting. Returns its errno."""
    code = "import os, sys\ntry:\n os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)\nexcept OSError as error:\n sys.exit(error.errno)"
    return subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=30 * PATIENCE).returncode


def write_and_settle(path, content):
    """The mount hears of a close after close(2) has returned. Meanwhile the name has the inode of its writer."""
    path.write_bytes(content)
    time.sleep(1)


def test_a_lease_is_broken_by_its_own_mount_and_not_by_others(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    there = pool.mount_by_hand("there")
    write_and_settle(pool.mount / "f", b"x")
    wait_until((there / "f").exists, "the file on the other mount")
    breaks = []
    before = signal.signal(signal.SIGIO, lambda *_: breaks.append(1))
    file = os.open(pool.mount / "f", os.O_RDONLY)
    try:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as refused:
            pytest.skip(f"this kernel gives no lease on FUSE: {refused}")
        assert fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        assert open_elsewhere(there / "f") == 0
        time.sleep(0.5)
        assert not breaks
        assert fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        assert open_elsewhere(pool.mount / "f") == errno.EWOULDBLOCK
        wait_until(lambda: breaks, "the signal of the break")
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        assert open_elsewhere(pool.mount / "f") == 0
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, before)


class Watch:
    """The events of a folder or a file, by inotify(7)."""

    def __init__(self, path):
        self.fd = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0
        assert LIBC.inotify_add_watch(self.fd, os.fsencode(path), sum(MASKS)) > 0
        self.seen = []

    def events(self):
        """All events until now, as (kind, name)."""
        try:
            data = os.read(self.fd, 64 * 1024)
        except BlockingIOError:
            data = b""
        while data:
            _, mask, _, length = EVENT.unpack_from(data)
            name = data[EVENT.size : EVENT.size + length].rstrip(b"\0").decode()
            self.seen += [(kind, name) for bit, kind in MASKS.items() if mask & bit]
            data = data[EVENT.size + length :]
        return self.seen

    def __del__(self):
        os.close(self.fd)


def test_events_are_those_of_the_own_mount(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    there = pool.mount_by_hand("there")
    folder = pool.mount / "folder"
    folder.mkdir()
    wait_until((there / "folder").exists, "the folder on the other mount")
    watch = Watch(folder)
    (folder / "a").write_bytes(b"x")
    (folder / "a").rename(folder / "b")
    (folder / "b").unlink()
    wanted = [("create", "a"), ("modify", "a"), ("close_write", "a"), ("moved_from", "a"), ("moved_to", "b"),
              ("delete", "b")]
    wait_until(lambda: watch.events() == wanted, "the events of the own mount")
    (there / "folder" / "theirs").write_bytes(b"x")
    wait_until(lambda: "theirs" in os.listdir(folder), "the file of the other mount")
    (folder / "mark").write_bytes(b"")
    wait_until(lambda: ("close_write", "mark") in watch.events(), "the last event")
    assert not [name for _, name in watch.seen if name == "theirs"]


def test_a_watch_of_a_file_ends_with_its_version_and_a_watch_of_its_folder_does_not(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    path = pool.mount / "folder" / "f"
    path.parent.mkdir()
    path.write_bytes(b"x")
    number = path.stat().st_ino
    sessions = 0
    of_folder = Watch(path.parent)

    def sees_a_session(watch):
        nonlocal sessions
        before = len(watch.events())
        with open(path, "r+b", buffering=0) as file:
            file.write(b"y")
        sessions += 1
        return len(watch.events()) > before

    # A watch that begins while the kernel still closes the file has the node of the session before.
    watches = [Watch(path)]
    wait_until(lambda: sees_a_session(watches[-1]) or watches.append(Watch(path)), "a watch that sees a session")
    of_file = watches[-1]
    assert of_file.events()[:2] == [("modify", ""), ("close_write", "")]
    wait_until(lambda: not sees_a_session(of_file), "the end of the watch")
    assert path.stat().st_ino == number
    seen = len(of_file.events())
    assert not any([sees_a_session(of_file) for _ in range(3)])
    path.unlink()
    assert len(of_file.events()) == seen  # nothing tells a program that its watch has ended
    assert of_folder.events() == [("modify", "f"), ("close_write", "f")] * sessions + [("delete", "f")]


def handle_of(path):
    """name_to_handle_at(2): the struct file_handle of a file."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", HANDLE_BYTES_MAX, 0), 8 + HANDLE_BYTES_MAX)
    number = ctypes.c_int()
    if LIBC.name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(number), 0) != 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return handle


def open_by_handle(mount, handle):
    folder = os.open(mount, os.O_RDONLY)
    try:
        fd = LIBC.open_by_handle_at(folder, handle, os.O_RDONLY)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "open_by_handle_at")
        return fd
    finally:
        os.close(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="open_by_handle_at(2) is root's")
def test_a_handle_opens_a_file_as_long_as_the_kernel_knows_it(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    content = os.urandom(MIB)
    (pool.mount / "f").write_bytes(content)
    keeper = os.open(pool.mount / "f", os.O_RDONLY)
    handle = handle_of(pool.mount / "f")
    drop_caches()
    with open(open_by_handle(pool.mount, handle), "rb") as file:
        assert file.read() == content
    os.close(keeper)

    def is_stale():
        drop_caches()
        try:
            os.close(open_by_handle(pool.mount, handle))
        except OSError as error:
            assert error.errno == errno.ESTALE
            return True
        return False

    wait_until(is_stale, "the end of the handle", 30)
    assert (pool.mount / "f").read_bytes() == content


def test_an_open_file_may_get_all_free_space(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    before = os.statvfs(pool.mount)
    free = before.f_bavail * before.f_frsize
    file = os.open(pool.mount / "f", os.O_RDWR | os.O_CREAT)
    # Space that the manager has granted for this file is free for it.
    assert os.statvfs(pool.mount).f_bavail == before.f_bavail
    os.posix_fallocate(file, 0, free)
    with pytest.raises(OSError) as refused:
        os.posix_fallocate(file, 0, free + MIB)
    assert refused.value.errno == errno.ENOSPC
    os.close(file)


def test_posix_fallocate_checks_the_room_and_reserves_none(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    files = [os.open(pool.mount / name, os.O_RDWR | os.O_CREAT) for name in "ab"]
    for file in files:
        os.posix_fallocate(file, 0, 40 * MIB)
    with pytest.raises(OSError) as refused:
        os.posix_fallocate(files[0], 0, 80 * MIB)
    assert refused.value.errno == errno.ENOSPC
    # Together they have no room: the second writer is refused by a write or by the close.
    noise = random.Random(1).randbytes(40 * MIB)
    assert os.pwrite(files[0], noise, 0) == len(noise)
    os.close(files[0])
    with pytest.raises(OSError) as full:
        for at in range(0, 40 * MIB, MIB):
            os.pwrite(files[1], os.urandom(MIB), at)
        os.fsync(files[1])
    assert full.value.errno == errno.ENOSPC
    with contextlib.suppress(OSError):
        os.close(files[1])
    assert (pool.mount / "a").read_bytes() == noise


def data_ranges(fd):
    """The ranges of the file that have data, by lseek(2)."""
    ranges, at, end = [], 0, os.fstat(fd).st_size
    while at < end:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as none_left:
            assert none_left.errno == errno.ENXIO
            break
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        ranges.append((begin, at))
    return ranges


KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate(fd, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


@pytest.mark.parametrize("chunking", ["fixed", "content"])
def test_a_punched_hole_is_a_hole(pool, chunking):
    pool.up("--chunking", chunking, benefactors=1, memory="128M", drain=False)
    there = pool.mount_by_hand("there")
    file = pool.mount / "f"
    content = bytearray(random.Random(3).randbytes(8 * MIB + 77))
    file.write_bytes(content)

    def punch(fd, mode, offset, length):
        fallocate(fd, mode, offset, length)
        end = min(offset + length, len(content))
        content[offset:end] = bytes(end - offset)

    fd = os.open(file, os.O_RDWR)
    punch(fd, PUNCH_HOLE | KEEP_SIZE, MIB + 4096, 2 * MIB)
    assert os.pread(fd, len(content), 0) == content
    assert data_ranges(fd) == [(0, MIB + 4096), (3 * MIB + 4096, len(content))]
    # Bytes that are only in the kernel's pages, or not yet committed, go away, too.
    new = os.urandom(MIB)
    os.pwrite(fd, new, 2 * MIB)
    content[2 * MIB : 3 * MIB] = new
    punch(fd, PUNCH_HOLE | KEEP_SIZE, 2 * MIB + 8192, 12288)
    punch(fd, ZERO_RANGE | KEEP_SIZE, 5 * MIB + 1, MIB)
    holes = [(0, MIB + 4096), (2 * MIB, 2 * MIB + 8192), (2 * MIB + 20480, 3 * MIB),
             (3 * MIB + 4096, 5 * MIB + 1), (6 * MIB + 1, len(content))]
    assert data_ranges(fd) == holes
    assert os.pread(fd, len(content), 0) == content
    os.close(fd)
    # Written bytes lie over the hole. The end of the file may be a hole, and grow.
    with open(file, "r+b", buffering=0) as again:
        assert data_ranges(again.fileno()) == holes
        again.seek(2 * MIB + 9000)
        again.write(b"written")
        content[2 * MIB + 9000 : 2 * MIB + 9007] = b"written"
        punch(again.fileno(), PUNCH_HOLE | KEEP_SIZE, 7 * MIB, 9 * MIB)
        assert os.fstat(again.fileno()).st_size == len(content)
        fallocate(again.fileno(), ZERO_RANGE, 8 * MIB, 2 * MIB)
        content.extend(bytes(10 * MIB - len(content)))
    drop_caches()
    assert file.read_bytes() == content
    with open(file, "rb") as reader:
        assert data_ranges(reader.fileno())[-1] == (6 * MIB + 1, 7 * MIB)
    wait_until(lambda: (there / "f").stat().st_size == len(content), "the size on the other mount")
    with open(there / "f", "rb") as reader:
        assert reader.read() == content
    # A hole gives its space back.
    used = os.stat(file).st_blocks
    with open(file, "r+b", buffering=0) as again:
        punch(again.fileno(), PUNCH_HOLE | KEEP_SIZE, 0, 10 * MIB)
    drop_caches()
    assert used > os.stat(file).st_blocks == 0
    assert file.read_bytes() == content


def test_many_holes_and_large_holes(pool):
    pool.up(benefactors=1, memory="128M", drain=False)
    file = pool.mount / "f"
    block = 4096
    count = 3000
    # A commit has 1,024 holes at most. The next ones are zeros.
    file.write_bytes(b"x" * (count * block))
    with open(file, "r+b", buffering=0) as out:
        for i in range(0, count, 2):
            fallocate(out.fileno(), PUNCH_HOLE | KEEP_SIZE, i * block, block)
    expected = b"".join(bytes(block) if i % 2 == 0 else b"x" * block for i in range(count))
    drop_caches()
    assert file.read_bytes() == expected
    # A call that writes zeros writes 1 GiB at most. A hole has no such limit.
    with open(file, "r+b", buffering=0) as out:
        out.truncate(1 << 40)
        out.seek((1 << 40) - 1)
        out.write(b"e")
        fallocate(out.fileno(), PUNCH_HOLE | KEEP_SIZE, block, (1 << 40) - 2 * block)
    drop_caches()
    with open(file, "rb") as reader:
        ranges = data_ranges(reader.fileno())
        assert all(begin < block or begin >= (1 << 40) - block for begin, _ in ranges)
        reader.seek(-1, os.SEEK_END)
        assert reader.read() == b"e"


def test_a_hole_beside_appends_of_another_mount(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    there = pool.mount_by_hand("there")
    file = pool.mount / "log"
    file.write_bytes(b"a" * MIB)
    wait_until((there / "log").exists, "the file on the other mount")
    mine = os.open(file, os.O_WRONLY | os.O_APPEND)
    theirs = os.open(there / "log", os.O_WRONLY | os.O_APPEND)
    os.write(mine, b"mine")
    os.write(theirs, b"theirs")
    os.close(theirs)
    fallocate(mine, PUNCH_HOLE | KEEP_SIZE, MIB // 2, MIB // 4)
    os.close(mine)
    assert file.read_bytes() == b"a" * (MIB // 2) + bytes(MIB // 4) + b"a" * (MIB // 4) + b"theirsmine"


def test_holes_outlive_the_manager(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    file = pool.mount / "f"
    file.write_bytes(b"x" * (4 * MIB))
    with open(file, "r+b", buffering=0) as out:
        fallocate(out.fileno(), PUNCH_HOLE | KEEP_SIZE, MIB, MIB)
    # A process of its own: a fork of this process would close the file, and wait for the manager.
    code = """if True:
        import ctypes, os, sys
        file = os.open(sys.argv[1], os.O_RDWR)
        assert ctypes.CDLL(None).fallocate(file, 3, ctypes.c_int64(3 << 20), ctypes.c_int64(4096)) == 0
        print(flush=True)
        input()
        os.close(file)"""
    writer = subprocess.Popen([sys.executable, "-c", code, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    writer.stdout.readline()
    pool.kill("manager")
    restart_manager(pool)
    # The session goes on with the new manager, with its hole.
    writer.communicate(b"\n", timeout=60 * PATIENCE)
    assert writer.returncode == 0
    drop_caches()
    assert file.read_bytes() == b"x" * MIB + bytes(MIB) + b"x" * MIB + bytes(4096) + b"x" * (MIB - 4096)
    with open(file, "rb") as reader:
        assert data_ranges(reader.fileno()) == [(0, MIB), (2 * MIB, 3 * MIB), (3 * MIB + 4096, 4 * MIB)]


def errno_of(call):
    """The errno with which a call fails, or 0."""
    try:
        call()
    except OSError as error:
        return error.errno
    return 0


def call_of(name, *arguments):
    """Calls a function of the C library, which answers -1 when it fails."""
    if getattr(LIBC, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def test_syncfs_stores_nothing_and_fsync_does(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    there = pool.mount_by_hand("there")
    file = os.open(pool.mount / "f", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"x")
    call_of("syncfs", file)
    assert os.listdir(there) == []
    os.fsync(file)
    wait_until((there / "f").exists, "the file on the other mount")
    os.close(file)


@pytest.mark.parametrize("way", ["removed", "replaced"])
def test_an_open_directory_that_another_mount_takes_away_is_stale(pool, way):
    pool.up(benefactors=1, memory="64M", drain=False)
    there = pool.mount_by_hand("there")
    (pool.mount / "folder").mkdir()
    (pool.mount / "other").mkdir()
    folder = os.open(pool.mount / "folder", os.O_RDONLY)
    assert os.listdir(folder) == []
    if way == "removed":
        (there / "folder").rmdir()
    else:
        (there / "other").rename(there / "folder")
    wait_until(lambda: errno_of(lambda: os.listdir(folder)) == errno.ESTALE, "the end of the directory")
    wait_until(lambda: errno_of(lambda: os.fstat(folder)) == errno.ESTALE, "the end of its attributes")
    os.close(folder)


def test_a_watch_of_a_file_ends_with_its_version(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    write_and_settle(pool.mount / "f", b"first")
    # An open reader keeps its version, and the inode of that version. Later versions have other inodes.
    with open(pool.mount / "f", "rb") as reader:
        of_file, of_folder = Watch(pool.mount / "f"), Watch(pool.mount)
        for count in (1, 2, 3):
            (pool.mount / "f").write_bytes(b"version")
            wait_until(lambda n=count: of_folder.events().count(("close_write", "f")) == n, "the event of the folder")
        assert ("close_write", "") not in of_file.events()
        assert reader.read() == b"first"


IOCTLS = {  # the request, and its argument
    "chattr": (0x40086602, struct.pack("l", 0x10)),  # FS_IOC_SETFLAGS, immutable
    "lsattr": (0x80086601, bytes(8)),  # FS_IOC_GETFLAGS
    "project quota": (0x401C5820, bytes(28)),  # FS_IOC_FSSETXATTR
    "reflink": (0x40049409, None),  # FICLONE, from the file itself
}


@pytest.mark.parametrize("call", [*IOCTLS, "quota"])
def test_file_flags_reflinks_and_quotas_are_refused(pool, call):
    pool.up(benefactors=1, memory="64M", drain=False)
    (pool.mount / "from").write_bytes(b"x")
    with open(pool.mount / "f", "wb") as file, open(pool.mount / "from", "rb") as source:
        if call == "quota":
            info = ctypes.create_string_buffer(256)
            code = errno_of(lambda: call_of("syscall", 443, file.fileno(), 0x80000400, 0, info))  # Q_GETFMT
        else:
            request, argument = IOCTLS[call]
            code = errno_of(lambda: fcntl.ioctl(file, request, argument or source.fileno()))
    assert code in (errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS)


def test_a_file_that_another_mount_shortens_under_a_lock_keeps_its_length(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    there = pool.mount_by_hand("there")
    (pool.mount / "f").write_bytes(b"a" * 1000)
    with open(pool.mount / "f", "r+b", buffering=0) as mine, open(there / "f", "r+b", buffering=0) as theirs:
        assert os.pread(mine.fileno(), 2000, 0) == b"a" * 1000
        fcntl.flock(theirs, fcntl.LOCK_EX)
        theirs.truncate(10)
        fcntl.flock(theirs, fcntl.LOCK_UN)
        fcntl.flock(mine, fcntl.LOCK_EX)
        assert os.fstat(mine.fileno()).st_size == 1000
        assert os.pread(mine.fileno(), 2000, 0) == b"a" * 10 + bytes(990)
    assert (there / "f").read_bytes() == b"a" * 10


@pytest.mark.skipif(os.geteuid() != 0, reason="devices and set-ID programs are root's")
@pytest.mark.parametrize("options", [[], ["--devices"]], ids=["default", "devices"])
def test_devices_open_and_set_id_bits_count_where_the_mount_allows_it(pool, options):
    pool.folder.chmod(0o755)
    pool.up("--allow-other", *options, benefactors=1, memory="64M", drain=False)
    os.mknod(pool.mount / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    shutil.copy("/usr/bin/id", pool.mount / "id")
    (pool.mount / "id").chmod(0o4755)
    if options:
        assert (pool.mount / "zero").open("rb").read(4) == bytes(4)
    else:
        assert errno_of((pool.mount / "zero").open) == errno.EACCES
    user = subprocess.run([pool.mount / "id", "-u"], stdout=subprocess.PIPE, check=True, user=12345).stdout
    assert int(user) == (0 if options else 12345)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_user_gets_no_mount_with_devices(tmp_path):
    refused = subprocess.run([BIN / "stdchk-mount", "--manager", "tcp:127.0.0.1:1", "--secret-file", "/dev/null", "--ready-file",
                              tmp_path / "ready", "--devices", tmp_path], check=False, capture_output=True, text=True,
                             preexec_fn=lambda: os.setresuid(12345, 12345, 12345))
    assert refused.returncode != 0
    assert "--devices is only for root" in refused.stderr
