"""libstdchk by ctypes: structures and functions of stdchk.h, and failures as OSError.

Threads: ctypes releases the interpreter lock during each call.
"""

import ctypes
import os
import pathlib
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)

SET_COMPLETE, SET_PINNED, SET_LATEST = 1, 2, 4
WAIT_COPIES, WAIT_DRAIN = 1, 2


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("manager", c_char_p), ("secret_file", c_char_p), ("transport", c_char_p),
        ("window_bytes", c_uint64), ("cache_bytes", c_uint64), ("naming", c_int), ("close_early", c_int),
        ("content_cuts", c_int), ("key_file", c_char_p), ("encrypt", c_int),
    ]


class Attributes(ctypes.Structure):
    _fields_ = [
        ("id", c_uint64), ("mode", c_uint32), ("uid", c_uint32), ("gid", c_uint32), ("links", c_uint32),
        ("size_bytes", c_uint64), ("stored_bytes", c_uint64), ("version", c_uint64), ("atime_ns", c_int64),
        ("mtime_ns", c_int64), ("ctime_ns", c_int64), ("drain_state", c_int32), ("reserved", c_uint32 * 7),
    ]


class DirectoryEntry(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("attributes", Attributes)]


class SpaceFigures(ctypes.Structure):
    _fields_ = [
        (name, c_uint64) for name in (
            "total_bytes", "free_bytes", "evictable_bytes", "logical_bytes", "stored_bytes", "files",
            "drain_pending_files", "drain_pending_bytes", "drain_failed_files", "debt_bytes")
    ] + [("reserved", c_uint64 * 6)]


class SetEntry(ctypes.Structure):
    _fields_ = [
        ("name", c_char * 320), ("application", c_char * 256), ("timestep", c_uint64), ("images", c_uint64),
        ("images_wanted", c_uint64), ("drained", c_uint64), ("size_bytes", c_uint64), ("newest_ns", c_int64),
        ("flags", c_uint32), ("reserved", c_uint32 * 7),
    ]


class SafetyFigures(ctypes.Structure):
    _fields_ = [
        ("safe", c_int32), ("reserved0", c_int32), ("files", c_uint64), ("unsafe_files", c_uint64),
        ("missing_files", c_uint64), ("first_unsafe", c_char * 1024),
    ]


class Completion(ctypes.Structure):
    _fields_ = [("tag", c_size_t), ("result", c_ssize_t), ("error", c_int), ("code", c_int), ("message", c_char * 240)]


# Each function that the package calls: result, arguments. tests/integration/python_test.py compares them with stdchk.h.
FUNCTIONS = {
    "stdchk_options_init": (None, [POINTER(Options)]),
    "stdchk_connect": (c_void_p, [POINTER(Options)]),
    "stdchk_disconnect": (None, [c_void_p]),
    "stdchk_open": (c_void_p, [c_void_p, c_char_p, c_int, c_uint]),
    "stdchk_pwrite": (c_ssize_t, [c_void_p, c_void_p, c_size_t, c_uint64]),
    "stdchk_pread": (c_ssize_t, [c_void_p, c_void_p, c_size_t, c_uint64]),
    "stdchk_truncate": (c_int, [c_void_p, c_uint64]),
    "stdchk_sync": (c_int, [c_void_p]),
    "stdchk_close": (c_int, [c_void_p]),
    "stdchk_abort": (None, [c_void_p]),
    "stdchk_stat": (c_int, [c_void_p, c_char_p, POINTER(Attributes)]),
    "stdchk_lstat": (c_int, [c_void_p, c_char_p, POINTER(Attributes)]),
    "stdchk_fstat": (c_int, [c_void_p, POINTER(Attributes)]),
    "stdchk_opendir": (c_void_p, [c_void_p, c_char_p]),
    "stdchk_readdir": (POINTER(DirectoryEntry), [c_void_p]),
    "stdchk_closedir": (None, [c_void_p]),
    "stdchk_mkdir": (c_int, [c_void_p, c_char_p, c_uint]),
    "stdchk_rmdir": (c_int, [c_void_p, c_char_p]),
    "stdchk_unlink": (c_int, [c_void_p, c_char_p]),
    "stdchk_rename": (c_int, [c_void_p, c_char_p, c_char_p, c_uint]),
    "stdchk_symlink": (c_int, [c_void_p, c_char_p, c_char_p]),
    "stdchk_readlink": (c_ssize_t, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "stdchk_chmod": (c_int, [c_void_p, c_char_p, c_uint]),
    "stdchk_utimens": (c_int, [c_void_p, c_char_p, c_int64, c_int64]),
    "stdchk_getxattr": (c_ssize_t, [c_void_p, c_char_p, c_char_p, c_void_p, c_size_t]),
    "stdchk_setxattr": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t, c_int]),
    "stdchk_listxattr": (c_ssize_t, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "stdchk_removexattr": (c_int, [c_void_p, c_char_p, c_char_p]),
    "stdchk_statfs": (c_int, [c_void_p, POINTER(SpaceFigures)]),
    "stdchk_set_list": (c_ssize_t, [c_void_p, c_char_p, POINTER(POINTER(SetEntry))]),
    "stdchk_set_latest": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(SetEntry)]),
    "stdchk_set_commit": (c_int, [c_void_p, c_char_p]),
    "stdchk_set_pin": (c_int, [c_void_p, c_char_p, c_char_p, c_int]),
    "stdchk_free": (None, [c_void_p]),
    "stdchk_policy_set": (c_int, [c_void_p, c_char_p, c_char_p]),
    "stdchk_policy_get": (c_ssize_t, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
    "stdchk_safe": (c_int, [c_void_p, c_char_p, POINTER(SafetyFigures)]),
    "stdchk_drain": (c_int, [c_void_p, c_char_p]),
    "stdchk_wait": (c_int, [c_void_p, c_char_p, c_uint, c_uint]),
    "stdchk_queue_create": (c_void_p, [c_void_p, c_uint, c_uint]),
    "stdchk_queue_destroy": (c_int, [c_void_p]),
    "stdchk_queue_pwrite": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_uint64, c_size_t]),
    "stdchk_queue_pread": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_uint64, c_size_t]),
    "stdchk_queue_sync": (c_int, [c_void_p, c_void_p, c_size_t]),
    "stdchk_queue_close": (c_int, [c_void_p, c_void_p, c_size_t]),
    "stdchk_queue_wait": (c_int, [c_void_p, POINTER(Completion), c_int, c_uint]),
    "stdchk_error": (c_char_p, []),
    "stdchk_error_code": (c_int, []),
    "stdchk_code_name": (c_char_p, [c_int]),
    "stdchk_version": (c_char_p, []),
}


def _load():
    inside = pathlib.Path(__file__).parents[1] / ".stdchk.mesonpy.libs" / "libstdchk.so.0"  # of the wheel
    path = os.environ.get("STDCHK_LIBRARY") or (str(inside) if inside.exists() else "libstdchk.so.0")
    library = ctypes.CDLL(path, use_errno=True)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()


def library_version():
    """The version of libstdchk, such as "0.2.0"."""
    return lib.stdchk_version().decode()


def failure(path=None):
    """The OSError for this thread's last failure. Its attribute `code` has the name of stdchk's own number."""
    return os_error(ctypes.get_errno(), lib.stdchk_error(), lib.stdchk_error_code(), path)


def os_error(number, sentence, code, path=None):
    """The OSError for an errno, a sentence in bytes, and stdchk's own number of the error."""
    error = OSError(number, sentence.decode(errors="replace"), *([path] if path else []))
    error.code = lib.stdchk_code_name(code).decode()
    return error


def checked(result, path=None):
    """Returns a result that is not negative, otherwise raises failure()."""
    if result < 0:
        raise failure(path)
    return result


class _View(ctypes.Structure):
    """Py_buffer of the stable C interface."""

    _fields_ = [
        ("buf", c_void_p), ("obj", ctypes.py_object), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
        ("ndim", c_int), ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p), ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_WRITABLE = 1  # PyBUF_WRITABLE; without it PyBUF_SIMPLE
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [ctypes.py_object, POINTER(_View), c_int], c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [POINTER(_View)], None


class Memory:
    """The address and length of an object's bytes, without a copy, while the `with` block lasts.

    Takes every object with a contiguous buffer, and contiguous tensors of torch in the memory of the CPU.
    Errors: BufferError for memory that is not contiguous, or read-only where `writable` is asked for; TypeError.
    """

    __slots__ = ("_object", "_view", "_writable", "address", "bytes")

    def __init__(self, thing, writable=False):
        self._object, self._view, self._writable = thing, None, writable

    def __enter__(self):
        thing = self._object
        if hasattr(thing, "data_ptr"):
            if thing.device.type != "cpu" or not thing.is_contiguous():
                raise BufferError("the tensor must be contiguous and in the memory of the CPU")
            self.address, self.bytes = thing.data_ptr(), thing.numel() * thing.element_size()
            return self
        view = _View()
        _get_buffer(thing, ctypes.byref(view), _WRITABLE if self._writable else 0)
        self._view, self.address, self.bytes = view, view.buf, view.len
        return self

    def __exit__(self, *_):
        if self._view is not None:
            _release_buffer(ctypes.byref(self._view))
            self._view = None


_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes, _new_bytes.restype = [c_void_p, c_ssize_t], ctypes.py_object


def filled_bytes(count, fill):
    """A new bytes object of `count` bytes that `fill(address)` fills; it returns how many of them it has filled."""
    if count == 0:
        return b""
    content = _new_bytes(None, count)
    with Memory(content) as memory:
        filled = fill(memory.address)
    return content if filled == count else content[:filled]
