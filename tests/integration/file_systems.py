"""File systems that tests in this folder create; they are removed with the tests."""

import contextlib
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile

import pytest
from processes import BIN, run, wait_until

MIB = 1 << 20

PROGRAMS = (BIN / "stdchk").resolve().parents[1] / "tests" / "integration"
TROUBLED = PROGRAMS / "troubled-fs"
FORGETFUL = PROGRAMS / "forgetful-fs"
LOOP_BYTES = {"ext4": 64 * MIB, "xfs": 320 * MIB}  # mkfs.xfs accepts no smaller size


def access_list(*entries):
    """An access list (acl(5)) as an extended attribute has it, in the bytes of linux/posix_acl_xattr.h. Each entry has a tag,
    rights, and perhaps an id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", entry[0], entry[1], entry[2] if len(entry) > 2 else -1)
                                           for entry in entries)


def need(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def need_root():
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")


def need_in_kernel(kind):
    """Skips the test where the kernel neither has this file system nor can load it."""
    kinds = pathlib.Path("/proc/filesystems")
    if shutil.which("modprobe") and kind not in kinds.read_text().split():
        run("modprobe", kind, check=False)
    if kind not in kinds.read_text().split():
        pytest.skip(f"the kernel has no {kind}")


@contextlib.contextmanager
def mounted(point, *command):
    """Mounts with `command` at `point`; unmounts at the end, even if processes still use it."""
    point.mkdir()
    done = run(*command, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    try:
        yield point
    finally:
        run("umount", "--lazy", point)


@contextlib.contextmanager
def loop(kind, folder, size=None):
    """A new file system in a file, which lies in memory so that no disk slows the tests down."""
    need_root()
    need(f"mkfs.{kind}")
    need_in_kernel(kind)
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=f".{kind}") as image:
        image.truncate(size or LOOP_BYTES[kind])
        run(f"mkfs.{kind}", "-q", image.name)
        with mounted(folder / kind, "mount", "-o", "loop", image.name, folder / kind) as point:
            yield point


@contextlib.contextmanager
def tmpfs(folder, size):
    need_root()
    with mounted(folder / "tmpfs", "mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder / "tmpfs") as point:
        yield point


@contextlib.contextmanager
def bindfs(folder):
    """Mounts a FUSE file system (bindfs) that shows another directory of this machine."""
    need("bindfs")
    (folder / "shown").mkdir()
    with mounted(folder / "bindfs", "bindfs", folder / "shown", folder / "bindfs") as point:
        yield point


class Troubled:
    """A file system that is slow or hangs, by its rules (troubled_fs.c)."""

    def __init__(self, folder):
        self.behind = folder / "behind"  # the directory that it shows; access to this directory never hangs
        self.behind.mkdir()
        self.point = folder / "troubled"
        self.point.mkdir()
        self.control = folder / "rules"
        self.control.touch()
        self.process = subprocess.Popen([TROUBLED, self.behind, self.control, self.point])
        wait_until(lambda: os.path.ismount(self.point) or self.process.poll() is not None, "the file system")
        assert self.process.poll() is None
        self.device = os.minor(os.lstat(self.point).st_dev)

    def rules(self, *lines):
        """Replaces all rules."""
        new = self.control.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.control)

    def held(self, kind):
        """The inodes of the files that rules of this kind have held up so far."""
        told = self.control.with_suffix(".held")
        lines = told.read_text().splitlines() if told.exists() else []
        return {int(line.split()[1]) for line in lines if line.startswith(f"{kind} ")}

    def abort(self):
        """Fails every waiting operation, so that no process is left that cannot end."""
        with contextlib.suppress(OSError):
            pathlib.Path(f"/sys/fs/fuse/connections/{self.device}/abort").write_text("1")

    def end(self):
        self.rules()
        self.abort()
        run("umount", "--lazy", self.point, check=False)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@contextlib.contextmanager
def troubled(folder):
    need_root()
    one = Troubled(folder)
    try:
        yield one
    finally:
        one.end()


class Forgetful:
    """A file system that forgets unsynced changes, as after a power failure (forgetful_fs.c)."""

    def __init__(self, folder, *options):
        self.point = folder / "forgetful"
        self.point.mkdir()
        self.process = subprocess.Popen([FORGETFUL, *options, self.point])
        wait_until(lambda: os.path.ismount(self.point) or self.process.poll() is not None, "the file system")
        assert self.process.poll() is None

    def forget(self, what="all"):
        """Forgets all unsynced changes, or only those of files' bytes. Processes that use it must have been
        killed."""
        os.setxattr(self.point, "user.forget", what.encode())

    def end(self):
        run("umount", "--lazy", self.point, check=False)
        self.process.kill()
        self.process.wait(10)


@contextlib.contextmanager
def forgetful(folder, *options):
    need_root()
    one = Forgetful(folder, *options)
    try:
        yield one
    finally:
        one.end()
