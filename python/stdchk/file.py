"""Open files of a pool."""

import concurrent.futures
import io
import os
import threading

from stdchk._library import Attributes, Memory, checked, filled_bytes, lib

_FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
          "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL}

def flags_of(mode):
    """The flags of open(2) for a mode of open(): "rb", "wb", "ab" or "xb", with "+" for both directions."""
    kind = mode.replace("b", "").replace("+", "")
    if kind not in _FLAGS or "b" not in mode or len(mode) > 3:
        raise ValueError(f'the mode {mode!r} is not one of "rb", "wb", "ab", "xb", or these with "+"')
    flags = _FLAGS[kind]
    return flags & ~os.O_ACCMODE | os.O_RDWR if "+" in mode else flags


class File(io.RawIOBase):
    """An open file of a pool. It has no buffer: every write goes directly into the library's window.

    close() makes the whole new content visible at once. flush() does nothing. A `with` block that ends with an
    exception drops the new content, and so does a File that is collected without close().

    read() and write() work on any contiguous memory without a copy in Python: bytes, memoryview, numpy arrays, CPU
    tensors of torch. A call of write() always writes all its bytes.

    Threads: pread_into() and pwrite() may be called from any thread at once. Errors: OSError.
    """

    _file = None  # the stdchk_file*
    _closing = None  # the end of this file in a Queue, which waits for the calls in `_pending`
    _lost = None  # the first failure of a call of a Queue

    def __init__(self, pool, path, mode="rb"):
        flags = flags_of(mode)
        self._pool, self.name, self.mode = pool, path, mode
        self._reads, self._writes = flags & os.O_ACCMODE != os.O_WRONLY, flags & os.O_ACCMODE != os.O_RDONLY
        self._appends, self._at = bool(flags & os.O_APPEND), 0
        self._pid = os.getpid()
        # Guards the members for queues, and the moment in which the file ends.
        self._calls_lock = threading.Lock()
        self._pending = set()  # calls of queues without a result
        self._file = pool.native_open(path, flags)

    def _native(self):
        if self._file is None:
            raise ValueError("I/O operation on closed file.")
        if os.getpid() != self._pid:
            raise RuntimeError("this file was opened before os.fork(): open it again in the child")
        return self._file

    @property
    def fileno(self):
        # torch's writer for fsspec takes an AttributeError for "no descriptor", and UnsupportedOperation for a failure.
        raise AttributeError("a file of a pool has no descriptor")

    def readable(self):
        return self._reads

    def writable(self):
        return self._writes

    def seekable(self):
        return True

    @property
    def size(self):
        """The length in bytes, with bytes that this object has written."""
        out = Attributes()
        checked(lib.stdchk_fstat(self._native(), out), self.name)
        return out.size_bytes

    def tell(self):
        return self._at

    def seek(self, offset, whence=os.SEEK_SET):
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        at = offset + (self.size if base is None else base)
        if at < 0:
            raise ValueError(f"negative seek position {at}")
        self._at = at
        return at

    def pread_into(self, memory, offset):
        """Fills `memory` with the bytes from `offset` on. Returns their number: fewer at the end of the file."""
        with Memory(memory, writable=True) as to:
            return checked(lib.stdchk_pread(self._native(), to.address, to.bytes, offset), self.name)

    def pwrite(self, memory, offset):
        """Writes all of `memory` at `offset`. Returns the number of bytes."""
        with Memory(memory) as source:
            return checked(lib.stdchk_pwrite(self._native(), source.address, source.bytes, offset), self.name)

    def readinto(self, memory):
        got = self.pread_into(memory, self._at)
        self._at += got
        return got

    def read(self, size=-1):
        file = self._native()
        if size is None or size < 0:
            size = max(self.size - self._at, 0)
        content = filled_bytes(
            size, lambda address: checked(lib.stdchk_pread(file, address, size, self._at), self.name))
        self._at += len(content)
        return content

    readall = read

    def write(self, memory):
        written = self.pwrite(memory, self._at)
        self._at = self.size if self._appends else self._at + written
        return written

    def truncate(self, size=None):
        size = self._at if size is None else size
        checked(lib.stdchk_truncate(self._native(), size), self.name)
        return size

    def sync(self):
        """Stores the bytes, as fsync(2) does, and makes them visible. An image A.Ni.Tj stays invisible until close()."""
        checked(lib.stdchk_sync(self._native()), self.name)

    def abort(self):
        """Ends the file and drops uncommitted bytes."""
        if not self._is_usable():
            self._forget()
            return
        file = self._detach()
        self._settle()
        lib.stdchk_abort(file)

    def close(self):
        """Makes the written bytes visible. Ends the file also in case of an error."""
        if not self._is_usable():
            self._forget()
            return
        file = self._detach()
        self._settle()
        if self._lost is not None:
            lib.stdchk_abort(file)
            raise self._lost
        checked(lib.stdchk_close(file), self.name)

    def _is_usable(self):
        return self._file is not None and os.getpid() == self._pid and self._pool.is_connected

    def _forget(self):
        self._file = None
        super().close()

    def _detach(self):
        """Takes the stdchk_file* out of this object, which counts as closed from now on."""
        with self._calls_lock:
            file, self._file = self._file, None
        super().close()
        return file

    def _settle(self):
        """Waits for the calls of queues."""
        concurrent.futures.wait([call.future for call in list(self._pending)])

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self):
        if self._file is not None:
            self.abort()
