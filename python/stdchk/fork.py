"""Clones of this process, by SnowFlock's calls (Lagar-Cavilla et al., EuroSys 2009, section 4.1).

    from stdchk import fork

    ticket = fork.request_ticket(8)
    me = fork.clone(ticket)
    if me > 0:                      # a clone: has all that the parent had in memory
        fork.exit(work(me, ticket.count))
    results = fork.join(ticket)     # the parent: what each clone gave to exit()

The daemon stdchk-forkd has to run on this host. Each call has SnowFlock's name, too: sf_request_ticket, sf_clone,
sf_exit, sf_join, sf_kill. The page docs/guide/fork.md lists what a clone gets from its parent, and what it does not get.

Threads: only the calling thread is in a clone, as after os.fork(); functions given to os.register_at_fork() run.
Errors: OSError with the errno and a sentence; CloneFailed from join() where a clone has no result.
"""

import ctypes
import dataclasses
import os
import pickle
import sys

_VALUE_BYTES_MAX = 4096
_EXITED, _DIED, _KILLED, _FAILED = range(4)
_END_NAMES = ("exited", "died", "was killed", "failed")


class _Ticket(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("count", ctypes.c_uint32)]


class _Result(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint32),
        ("end", ctypes.c_int),
        ("status", ctypes.c_int32),
        ("value_bytes", ctypes.c_uint32),
        ("value", ctypes.c_char * _VALUE_BYTES_MAX),
    ]


def _load():
    # PyDLL keeps the interpreter lock, which sf_clone needs: a clone has only this thread.
    path = os.environ.get("STDCHK_FORK_LIBRARY", "libstdchk_fork.so.0")
    held, free = ctypes.PyDLL(path), ctypes.CDLL(path)
    held.sf_exit_with.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    for library in (held, free):
        library.sf_error.restype = ctypes.c_char_p
    return held, free


_held, _free = _load()


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A reservation of `count` clones, which may be fewer than were asked for."""

    number: int
    count: int

    def _native(self):
        return ctypes.byref(_Ticket(self.number, self.count))


class CloneFailed(RuntimeError):
    """At least one clone ended without a result. `results` has the other clones' results, by id. `reasons` has the causes."""

    def __init__(self, reasons, results):
        super().__init__("; ".join(f"clone {number}: {reason}" for number, reason in sorted(reasons.items())))
        self.reasons, self.results = reasons, results


def _checked(result, library):
    if result < 0:
        raise OSError(-result, library.sf_error().decode(errors="replace"))
    return result


def request_ticket(n, hierarchical=False, outlive=False):
    """Reserves up to `n` clones.

    With `hierarchical` the clones of one host share one set of namespaces. With `outlive` the clones go on when this
    process ends; nobody gets their values then.
    """
    ticket = _Ticket()
    options = int(hierarchical) + 2 * int(outlive)
    _checked(_free.sf_request_ticket(ctypes.c_uint32(n), options, ctypes.byref(ticket)), _free)
    return Ticket(ticket.number, ticket.count)


def prepare():
    """Merges this process's memory into huge pages, so that clone() takes 1 ms for 1 GiB instead of 20."""
    _checked(_free.sf_prepare(), _free)


def clone(ticket):
    """Makes the ticket's clones. Returns 0 in the parent, and the clone's id, from 1, in each clone."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.pythonapi.PyOS_BeforeFork()
    result = _held.sf_clone(ticket._native())
    if result > 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return _checked(result, _held)


def exit(value=None, status=0):
    """Ends this clone. `value` is what join() returns for it; pickled it has at most 4096 bytes."""
    sys.stdout.flush()
    sys.stderr.flush()
    content = pickle.dumps(value)
    if len(content) > _VALUE_BYTES_MAX:
        raise ValueError(f"the value has {len(content)} bytes, and at most {_VALUE_BYTES_MAX} fit: write it to a file")
    _held.sf_exit_with(status, content, len(content))


def join(ticket, missing_ok=False):
    """Waits until all clones have ended, and returns a dictionary of their values by id.

    A clone that was killed or died is left out with `missing_ok`; otherwise CloneFailed is raised.
    """
    results = (_Result * ticket.count)()
    _checked(_free.sf_join_results(ticket._native(), results), _free)
    values, reasons = {}, {}
    for number, result in enumerate(results, 1):
        content = ctypes.string_at(ctypes.addressof(result) + _Result.value.offset, result.value_bytes)
        if result.id == 0:
            continue  # the ticket was never used
        if result.end == _EXITED and content:
            values[number] = pickle.loads(content)
        elif result.end == _EXITED:
            values[number] = result.status
        else:
            reasons[number] = content.decode(errors="replace") or _END_NAMES[result.end]
    if reasons and not missing_ok:
        raise CloneFailed(reasons, values)
    return values


def kill(ticket, number=0):
    """Ends all clones of the ticket, or one. The ticket still has to be joined."""
    if number:
        _checked(_free.sf_kill_one(ticket._native(), ctypes.c_uint32(number)), _free)
    else:
        _checked(_free.sf_kill(ticket._native()), _free)


def clone_id():
    """The id of this clone; 0 in a process that is no clone."""
    return _held.sf_id()


def identify():
    """In a virtual machine: asks the host who this machine is, and sets the addresses of its family's network.

    clone() does so by itself. The first machine needs this call after it has booted, and a clone that `stdchk vm fork` or
    `stdchk vm start` has made. Returns what clone_id() returns from then on.
    """
    return _checked(_held.sf_identify(), _held)


sf_request_ticket, sf_clone, sf_exit, sf_join, sf_kill = request_ticket, clone, exit, join, kill
