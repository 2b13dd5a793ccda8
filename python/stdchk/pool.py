"""Connections to pools: files, names, sets, policies, and the safety of drained files."""

import ctypes
import dataclasses
import errno
import io
import json
import os
import pathlib
import shutil
import stat as stat_bits
import subprocess
import tempfile
import time
import weakref

from stdchk import _library
from stdchk._library import Attributes, SetEntry, checked, failure, lib
from stdchk.file import File

_DRAIN_STATES = ("none", "pending", "running", "drained", "failed")
_BUFFER_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Entry:
    """A name with its attributes. `drain` is none, pending, running, drained or failed."""

    path: str
    name: str
    mode: int
    size: int
    stored_bytes: int
    version: int
    mtime_ns: int
    uid: int
    gid: int
    id: int
    drain: str

    def is_dir(self):
        return stat_bits.S_ISDIR(self.mode)

    def is_file(self):
        return stat_bits.S_ISREG(self.mode)

    def is_symlink(self):
        return stat_bits.S_ISLNK(self.mode)


@dataclasses.dataclass(frozen=True)
class Set:
    """All images A.*.Tj of one application and timestep; or what the settings `set` and `series` of the folder say.

    `application` is empty if `name` is not of the form A.*.Tj. `images_wanted` is 0 if the policy gives no number.
    """

    name: str
    application: str
    timestep: int
    images: int
    images_wanted: int
    drained: int
    size: int
    newest_ns: int
    complete: bool
    pinned: bool
    latest: bool


@dataclasses.dataclass(frozen=True)
class Safety:
    """True when files are on the parallel file system and verified, also as a bool."""

    safe: bool
    files: int
    unsafe_files: int
    missing_files: int
    first_unsafe: str

    def __bool__(self):
        return self.safe


@dataclasses.dataclass(frozen=True)
class Space:
    """The space of a pool in bytes, and the files and bytes that are still to be drained (stdchk.h)."""

    total_bytes: int
    free_bytes: int
    evictable_bytes: int
    logical_bytes: int
    stored_bytes: int
    files: int
    drain_pending_files: int
    drain_pending_bytes: int
    drain_failed_files: int
    debt_bytes: int


def _path(path):
    text = os.fspath(path)
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _text(name):
    return name.decode("utf-8", "surrogateescape")


def _entry(path, name, found):
    return Entry(path, name, found.mode, found.size_bytes, found.stored_bytes, found.version, found.mtime_ns,
                 found.uid, found.gid, found.id, _DRAIN_STATES[found.drain_state])


def _set(found):
    return Set(_text(found.name), _text(found.application), found.timestep, found.images, found.images_wanted,
               found.drained, found.size_bytes, found.newest_ns, bool(found.flags & _library.SET_COMPLETE),
               bool(found.flags & _library.SET_PINNED), bool(found.flags & _library.SET_LATEST))


def _is_own(found):
    """True when only this user and root can change the file or folder of this os.stat_result."""
    return found.st_uid == os.geteuid() and found.st_mode & 0o022 == 0


def _read_own(path):
    """The text of a regular file of this user, or None."""
    # Without O_NONBLOCK a FIFO would wait for somebody who writes.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as file:
        found = os.stat(file.fileno())
        return file.read() if stat_bits.S_ISREG(found.st_mode) and _is_own(found) else None


def _record_of(mount):
    """The record that `stdchk up` keeps of the pool with this mount point.

    Another user can make /tmp/stdchk-UID first, and the environment may name another user's runtime folder, for
    example after su(1). A record there would lead to that user's pool, so it is not read.
    """
    wanted = os.path.realpath(mount)
    folders = [pathlib.Path(f"/tmp/stdchk-{os.geteuid()}")]
    if os.environ.get("XDG_RUNTIME_DIR", "").startswith("/"):
        folders.insert(0, pathlib.Path(os.environ["XDG_RUNTIME_DIR"], "stdchk"))
    for folder in folders:
        try:
            found = os.lstat(folder)
        except OSError:
            continue
        if not stat_bits.S_ISDIR(found.st_mode) or not _is_own(found):
            continue
        for file in sorted(folder.glob("*/pool.json")):
            try:
                record = json.loads(_read_own(file) or "{}")
            except (OSError, ValueError):
                continue
            if os.path.realpath(record.get("mount", "")) == wanted:
                return record
    raise FileNotFoundError(errno.ENOENT, "no pool of yours is up there; `stdchk status` lists them", os.fspath(mount))


def _program():
    beside = os.environ.get("STDCHK_BIN")
    found = os.path.join(beside, "stdchk") if beside else shutil.which("stdchk")
    if not found:
        raise FileNotFoundError(errno.ENOENT, "the program `stdchk` is not installed", "stdchk")
    return found


class Pool:
    """A connection to a pool.

    `mount`: the mount point, or the name, of a pool that `stdchk up` started. Without it, `manager` is the
    manager's address (STDCHK_MANAGER) and `secret_file` the file of the secret (STDCHK_SECRET_FILE).
    The other options are those of struct stdchk_options in stdchk.h; None takes the pool's setting.

    Threads: any. After os.fork() the child connects anew. Errors: OSError; `error.code` has stdchk's own name.
    """

    _by_name = {}  # (process id, mount) -> Pool, for get()

    def __init__(self, mount=None, *, manager=None, secret_file=None, transport=None, window_bytes=0, cache_bytes=0,
                 naming=None, close_early=False, content_cuts=None, key_file=None, encrypt=False):
        self._pool, self._pid, self._own = None, os.getpid(), None
        self._queues = weakref.WeakSet()
        if mount is not None:
            record = _record_of(mount)
            manager, secret_file = record["manager_address"], record["secret_file"]
        options = _library.Options()
        lib.stdchk_options_init(options)
        for field, value in (("manager", manager), ("secret_file", secret_file), ("transport", transport),
                             ("key_file", key_file)):
            setattr(options, field, None if value is None else _path(value))
        options.window_bytes, options.cache_bytes = window_bytes, cache_bytes
        options.naming = -1 if naming is None else {"off": 0, "on": 1, "auto": 2}[naming]
        options.content_cuts = -1 if content_cuts is None else int(content_cuts)
        options.close_early, options.encrypt = int(close_early), int(encrypt)
        self._pool = lib.stdchk_connect(options)
        if not self._pool:
            raise failure()

    @classmethod
    def up(cls, *, benefactors=1, memory="1G", drain=None, mount=None, arguments=(), **options):
        """Starts a pool on this machine by `stdchk up`, and connects to it. close() takes the pool down.

        Without `mount` nothing is mounted. `arguments`: more words of `stdchk up`, such as "--job".
        `options` are those of Pool().
        """
        folder = None
        words = [_program(), "up", "--benefactors", str(benefactors), "--memory", memory]
        if mount is None:
            folder = tempfile.mkdtemp(prefix="stdchk-python-")
            mount = os.path.join(folder, "pool")
            words.append("--no-mount")
        words += ["--mount", os.fspath(mount)] + (["--drain", os.fspath(drain)] if drain else [])
        done = subprocess.run([*words, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(errno.EIO, f"`stdchk up` failed: {done.stderr.strip()}")
        try:
            pool = cls(mount, **options)
        except BaseException:
            subprocess.run([_program(), "down", mount], capture_output=True)
            raise
        pool._own = (mount, folder)
        return pool

    @classmethod
    def get(cls, mount=None):
        """Returns this process's connection to a pool. The first call makes it. Paths stdchk://... use it, too."""
        key = (os.getpid(), mount)
        pool = cls._by_name.get(key)
        if pool is None or not pool.is_connected:
            pool = cls._by_name[key] = cls(mount)
        return pool

    @property
    def is_connected(self):
        return self._pool is not None and self._pid == os.getpid()

    def native(self):
        """The stdchk_pool*, for calls of the C library."""
        if self._pool is None:
            raise ValueError("the connection to the pool is closed")
        if self._pid != os.getpid():
            raise RuntimeError("this connection was made before os.fork(): connect again in the child")
        return self._pool

    def close(self):
        """Ends the connection, after the calls of its queues. Files that are still open drop their uncommitted bytes."""
        for queue in list(self._queues):
            queue.close()
        pool, self._pool = self._pool, None
        if pool is None or self._pid != os.getpid():
            return
        lib.stdchk_disconnect(pool)
        if self._own:
            mount, folder = self._own
            done = subprocess.run([_program(), "down", mount], capture_output=True, text=True)
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            if done.returncode != 0:
                raise OSError(errno.EIO, f"`stdchk down` failed: {done.stderr.strip()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- files

    def native_open(self, path, flags, mode=0o644):
        """The stdchk_file* of a newly opened file, for calls of the C library."""
        file = lib.stdchk_open(self.native(), _path(path), flags, mode)
        if not file:
            raise failure(path)
        return file

    def open(self, path, mode="rb", buffering=0, encoding=None):
        """Opens a file: a File, or with `buffering` or a text mode a buffer of the module io over it."""
        if "b" not in mode:
            raw = File(self, path, mode.replace("t", "") + "b")
            buffered = io.BufferedWriter(raw) if raw.writable() else io.BufferedReader(raw)
            return io.TextIOWrapper(buffered, encoding=encoding or "utf-8")
        file = File(self, path, mode)
        if buffering and not file.writable():
            return io.BufferedReader(file, _BUFFER_BYTES if buffering < 0 else buffering)
        return file

    def read_bytes(self, path):
        with self.open(path) as file:
            return file.read()

    def write_bytes(self, path, content):
        with self.open(path, "wb") as file:
            return file.write(content)

    # ---- names

    def stat(self, path, follow_symlinks=True):
        found = Attributes()
        call = lib.stdchk_stat if follow_symlinks else lib.stdchk_lstat
        checked(call(self.native(), _path(path), found), path)
        return _entry(os.fspath(path), os.path.basename(os.fspath(path).rstrip("/")), found)

    def exists(self, path):
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def scandir(self, path=""):
        """The entries of a folder, sorted by name."""
        folder = lib.stdchk_opendir(self.native(), _path(path))
        if not folder:
            raise failure(path)
        entries, prefix = [], os.fspath(path).rstrip("/")
        try:
            while entry := lib.stdchk_readdir(folder):
                name = _text(entry.contents.name)
                entries.append(_entry(f"{prefix}/{name}" if prefix else name, name, entry.contents.attributes))
        finally:
            lib.stdchk_closedir(folder)
        return entries

    def listdir(self, path=""):
        return [entry.name for entry in self.scandir(path)]

    def mkdir(self, path, mode=0o755):
        checked(lib.stdchk_mkdir(self.native(), _path(path), mode), path)

    def makedirs(self, path, mode=0o755, exist_ok=False):
        parts = [part for part in os.fspath(path).split("/") if part]
        for count in range(1, len(parts) + 1):
            try:
                self.mkdir("/".join(parts[:count]), mode)
            except FileExistsError:
                if count == len(parts) and not (exist_ok and self.stat(path).is_dir()):
                    raise

    def rmdir(self, path):
        checked(lib.stdchk_rmdir(self.native(), _path(path)), path)

    def unlink(self, path):
        checked(lib.stdchk_unlink(self.native(), _path(path)), path)

    remove = unlink

    def rmtree(self, path):
        for entry in self.scandir(path):
            if entry.is_dir():
                self.rmtree(entry.path)
            else:
                self.unlink(entry.path)
        self.rmdir(path)

    def rename(self, source, target, *, replace=True):
        """Renames in one step for all readers. Without `replace`, raises FileExistsError when the target exists."""
        checked(lib.stdchk_rename(self.native(), _path(source), _path(target), 0 if replace else 1), source)

    def symlink(self, target, path):
        checked(lib.stdchk_symlink(self.native(), _path(target), _path(path)), path)

    def readlink(self, path):
        to = ctypes.create_string_buffer(4096)
        count = checked(lib.stdchk_readlink(self.native(), _path(path), to, len(to)), path)
        return _text(to.raw[:count])

    def chmod(self, path, mode):
        checked(lib.stdchk_chmod(self.native(), _path(path), mode), path)

    def utime(self, path, ns):
        checked(lib.stdchk_utimens(self.native(), _path(path), *ns), path)

    def getxattr(self, path, name):
        to = ctypes.create_string_buffer(1 << 16)
        count = checked(lib.stdchk_getxattr(self.native(), _path(path), name.encode(), to, len(to)), path)
        return to.raw[:count]

    def setxattr(self, path, name, value, flags=0):
        checked(lib.stdchk_setxattr(self.native(), _path(path), name.encode(), value, len(value), flags), path)

    def listxattr(self, path):
        to = ctypes.create_string_buffer(1 << 16)
        count = checked(lib.stdchk_listxattr(self.native(), _path(path), to, len(to)), path)
        return [name.decode() for name in to.raw[:count].split(b"\0") if name]

    def removexattr(self, path, name):
        checked(lib.stdchk_removexattr(self.native(), _path(path), name.encode()), path)

    def statfs(self):
        found = _library.SpaceFigures()
        checked(lib.stdchk_statfs(self.native(), found))
        return Space(*(getattr(found, field.name) for field in dataclasses.fields(Space)))

    # ---- sets, policy, and what is safe

    def sets(self, folder=""):
        """The sets of a folder, the newest first."""
        found = ctypes.POINTER(SetEntry)()
        count = checked(lib.stdchk_set_list(self.native(), _path(folder), found), folder)
        try:
            return [_set(found[number]) for number in range(count)]
        finally:
            lib.stdchk_free(found)

    def latest(self, folder="", application=None):
        """The newest complete set, or None."""
        found = SetEntry()
        try:
            checked(lib.stdchk_set_latest(
                self.native(), _path(folder), None if application is None else _path(application), found), folder)
        except FileNotFoundError:
            self.stat(folder)
            return None
        return _set(found)

    def pin(self, folder, name, pinned=True):
        """Keeps the set `name`, such as "heat.*.T3" or "step-100", from being removed by the policy."""
        checked(lib.stdchk_set_pin(self.native(), _path(folder), _path(name), int(pinned)), folder)

    def commit(self, path):
        """Says that the directory `path` is a whole set, where sets are directories."""
        checked(lib.stdchk_set_commit(self.native(), _path(path)), path)

    def policy(self, path, key):
        """The value of a setting in force, such as "12h"."""
        to = ctypes.create_string_buffer(256)
        checked(lib.stdchk_policy_get(self.native(), _path(path), key.encode(), to, len(to)), path)
        return to.value.decode()

    def set_policy(self, folder, **settings):
        """Changes settings of a folder: set_policy("run", images=64, purge_after="12h", preset="dcp")."""
        words = " ".join(f"{key.replace('_', '-')}={value}" for key, value in settings.items())
        checked(lib.stdchk_policy_set(self.native(), _path(folder), words.encode()), folder)

    def safe(self, path=""):
        """Looks up the files at or below `path` in the drain directory."""
        found = _library.SafetyFigures()
        checked(lib.stdchk_safe(self.native(), _path(path), found), path)
        return Safety(bool(found.safe), found.files, found.unsafe_files, found.missing_files, _text(found.first_unsafe))

    def drain(self, path=""):
        """Puts the files at or below `path` at the head of the drain's queue."""
        checked(lib.stdchk_drain(self.native(), _path(path)), path)

    def wait(self, path="", *, copies=True, drain=False, seconds=60.0):
        """Waits until all files at or below `path` are copied, drained, or both. Raises TimeoutError after `seconds`."""
        flags = copies * _library.WAIT_COPIES | drain * _library.WAIT_DRAIN
        end = time.monotonic() + seconds
        while True:
            # In steps, so that signals such as Ctrl-C are handled.
            left_ms = max(int((end - time.monotonic()) * 1000), 0)
            try:
                checked(lib.stdchk_wait(self.native(), _path(path), flags, min(left_ms, 8000)), path)
                return
            except TimeoutError:
                if left_ms <= 8000:
                    raise
