"""MPI programs on clones of a prepared process: each rank begins with what the process has in memory.

    python3 -m stdchk.mpi -n 4 ./program ARG...                   an unmodified MPI program, one rank in each clone
    python3 -m stdchk.mpi -n 4 --prepare load.py work.py ARG...   ranks that have the variables of load.py

Any MPI program of MPICH is started in the clones as `mpiexec` would start it on hosts. The clones share one set of
namespaces, apart from the host's, so that ranks talk by shared memory. For a program whose name ends with ".py" no new
process starts. The clone itself becomes the rank and runs it, with all modules and data that `--prepare` has loaded.

Steps: `mpiexec -launcher manual` prints the command of a proxy for each host and waits. This module clones the process
by stdchk.fork, and each clone runs one of these commands. For a ".py" program the proxy starts a small program. That
program passes the rank's environment and its connection to the proxy on to the clone (unix(7), SCM_RIGHTS).

Needs: stdchk-forkd on this host, MPICH's mpiexec. Clones of one host only: clones on other hosts have no network.
Errors: OSError; the exit status is mpiexec's.
"""

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import re
import runpy
import signal
import socket
import struct
import subprocess
import sys
import traceback

from stdchk import fork

_CLONE = "STDCHK_MPI_CLONE"  # the number of the clone, for the program that its proxy starts
_LAUNCH, _LAUNCH_END = "HYDRA_LAUNCH:", "HYDRA_LAUNCH_END"
_SIOCGIFADDR = 0x8915  # netdevice(7)
_MESSAGE_BYTES_MAX = 1 << 20


def _parents_address():
    """The address of the parent's host in the clones' subnet: docs/guide/fork.md."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        answer = fcntl.ioctl(s, _SIOCGIFADDR, struct.pack("256s", b"eth0"))
    return socket.inet_ntoa(answer[20:23] + b"\1")


def _end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: mpiexec waits for ever for lost proxies


def _meeting(number):
    """The abstract socket name at which clone `number` waits for its rank, in the clones' network namespace."""
    return f"\0stdchk-mpi-{number}"


def _start_mpiexec(mpiexec, count, command):
    """Starts mpiexec. Returns its process and the commands of the proxies, one for each clone."""
    hosts = ",".join(f"clone{number}" for number in range(1, count + 1))
    process = subprocess.Popen(
        [mpiexec, "-launcher", "manual", "-hosts", hosts, "-ppn", "1", "-n", str(count), *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=_end_with_parent)
    proxies = []
    for line in process.stdout:
        if line.startswith(_LAUNCH_END):
            break
        if line.startswith(_LAUNCH):
            proxies.append(line[len(_LAUNCH):].split())
    if len(proxies) != count:
        process.kill()
        process.wait()
        raise OSError(f"{mpiexec} named {len(proxies)} proxies for {count} clones: is it of MPICH?")
    return process, proxies


def _hand_over():
    """The program that a proxy starts: passes the rank on to its clone, and waits until the clone's rank ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(_meeting(os.environ[_CLONE]))
        descriptors = [0, 1, 2, int(os.environ["PMI_FD"])]
        socket.send_fds(s, [json.dumps(dict(os.environ)).encode()], descriptors)
        answer = s.recv(16)
    return int(answer) if answer else 1


def _become_rank(listener, program, arguments, prepared):
    """Runs in a clone: receives the rank from the proxy's program and runs `program`. Returns its exit status."""
    connection, _ = listener.accept()
    content, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES_MAX, 4)
    environment = json.loads(content)
    for number in range(3):
        os.dup2(descriptors[number], number)
        os.close(descriptors[number])
    environment["PMI_FD"] = str(descriptors[3])
    os.environ.update(environment)
    sys.argv = [program, *arguments]
    try:
        runpy.run_path(program, init_globals=prepared, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # The proxy waits until nobody has the rank's output and its connection open.
    with open(os.devnull, "r+b") as nothing:
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    with contextlib.suppress(OSError):  # MPI_Finalize has closed it
        os.close(descriptors[3])
    connection.send(str(status).encode())
    return status


def _run_clone(proxy, program, arguments, prepared):
    """Runs in a clone: runs its proxy and, for a ".py" program, the rank itself. Returns the exit status."""
    listener = None
    if prepared is not None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(_meeting(fork.clone_id()))
        listener.listen(1)
    at = proxy.index("--control-port") + 1
    proxy[at] = re.sub(r"^.*:", _parents_address() + ":", proxy[at])
    environment = {**os.environ, _CLONE: str(fork.clone_id())}
    errors = os.dup(2)  # the rank's own goes to its proxy
    started = subprocess.Popen(proxy, env=environment)
    status = _become_rank(listener, program, arguments, prepared) if listener else 0
    ended = started.wait()
    if ended != 0:
        os.write(errors, f"stdchk.mpi: the proxy of clone {fork.clone_id()} ended with {ended}\n".encode())
    return ended or status


def run(count, program, arguments=(), prepared=None, mpiexec="mpiexec.hydra"):
    """Runs an MPI program with `count` ranks on clones of this process. Returns mpiexec's exit status.

    prepared: None: each clone starts the program. Otherwise the program is a Python file that the clones run
    themselves, with these global variables.

    Errors: OSError when fewer than `count` clones are granted, or mpiexec cannot be used.
    """
    # All ranks share a set of namespaces, because they talk by shared memory.
    ticket = fork.request_ticket(count, hierarchical=True)
    if ticket.count < count:
        fork.join(ticket)
        raise OSError(f"there is room for {ticket.count} clones, and {count} are needed")
    command = [program, *arguments]
    if prepared is not None:
        command = [sys.executable, "-c", "import sys; from stdchk import mpi; sys.exit(mpi._hand_over())"]
    try:
        process, proxies = _start_mpiexec(mpiexec, count, command)
    except OSError:
        fork.join(ticket)
        raise
    me = fork.clone(ticket)
    if me > 0:
        process.stdout.close()
        try:
            status = _run_clone(proxies[me - 1], program, list(arguments), prepared)
            # Other ranks may still close connections to this rank. The parent ends all clones.
            while status == 0:
                signal.pause()
        except BaseException:
            traceback.print_exc()
            status = 1
        fork.exit(status, status=status)
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
    status = process.wait()
    fork.kill(ticket)  # after mpiexec's end no rank is needed
    fork.join(ticket, missing_ok=True)
    return status


def main():
    parser = argparse.ArgumentParser(prog="stdchk.mpi", description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, required=True, metavar="N", help="number of ranks; each rank runs in its own clone")
    parser.add_argument("--prepare", metavar="FILE", help="run this Python file once, before the clones are made")
    parser.add_argument("--mpiexec", default="mpiexec.hydra", help="MPICH's program [%(default)s]")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    prepared = None
    if given.program.endswith(".py"):
        prepared = runpy.run_path(given.prepare) if given.prepare else {}
        prepared = {name: value for name, value in prepared.items() if not name.startswith("__")}
    return run(given.n, given.program, given.arguments, prepared, given.mpiexec)


if __name__ == "__main__":
    sys.exit(main())
