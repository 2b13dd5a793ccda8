"""The call by which a program in a container of `stdchk run` asks for a checkpoint of its whole job.

    from stdchk import job

    if job.checkpoint() is job.Outcome.RESTARTED:
        print("the job was restarted from this set")

A program that never calls it is saved as well.

Threads: any. Errors: FileNotFoundError: this is no container of a job; OSError: the container's process 1 gave no answer.
"""

import enum
import errno
import socket

_SOCKET = "/.stdchk/socket"
_ANSWER_BYTES_MAX = 64


class Outcome(enum.Enum):
    NOT_TAKEN = "not-taken"  # the checkpoint was given up; the set before it stands
    GOES_ON = "goes-on"  # the set is complete in the pool
    RESTARTED = "restarted"  # the job was restarted from this set, while the call waited


def checkpoint(path=_SOCKET):
    """Asks for a checkpoint of the whole job. Returns its Outcome when the set is complete or given up.

    A call by a single rank is enough. Errors: OSError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        answer = b""
        while len(answer) < _ANSWER_BYTES_MAX and (part := connection.recv(_ANSWER_BYTES_MAX)):
            answer += part
    word, _, number = answer.decode("ascii", "replace").partition(" ")
    if not number:
        raise OSError(errno.EPROTO, "the container's process 1 has answered nothing", path)
    return Outcome(word)
