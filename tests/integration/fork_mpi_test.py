"""MPI programs on clones of a prepared process: python3 -m stdchk.mpi."""

import re
import shutil
import socket
import subprocess
import sys
import textwrap

import pytest
from fork_test import daemon, pytestmark  # noqa: F401
from processes import PATIENCE, run, wait_until

needs_mpich = pytest.mark.skipif(
    shutil.which("mpiexec.hydra") is None or shutil.which("mpicc.mpich") is None, reason="MPICH is not installed")

RING = r"""
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int rank, size, token = 0;
  char name[64];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  gethostname(name, sizeof name);
  if (rank > 0) MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  token += rank;
  MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
  if (rank == 0) MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  printf("rank %d of %d on %s token %d %s\n", rank, size, name, token, argv[1]);
  MPI_Finalize();
  return argc > 2 && rank == 1 ? 7 : 0;
}
"""

WORK = """
    import ctypes, os, socket, sys
    mpi = ctypes.CDLL("libmpich.so.12")
    WORLD, SUM = 0x44000000, 0x58000003  # of MPICH's mpi.h
    assert mpi.MPI_Init(None, None) == 0
    rank, size = ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank)); mpi.MPI_Comm_size(WORLD, ctypes.byref(size))
    part = ctypes.c_int64(sum(data[rank.value :: size.value])); total = ctypes.c_int64()
    mpi.MPI_Allreduce(ctypes.byref(part), ctypes.byref(total), 1, LONG_LONG, SUM, WORLD)
    print(f"rank {rank.value} of {size.value} total {total.value} loaded by {loaded_by} argument {sys.argv[1]}", flush=True)
    mpi.MPI_Finalize()
    sys.exit(3 if sys.argv[1] == "fail" else 0)
    """


def mpi(daemon, *words, status=0):  # noqa: F811
    done = subprocess.run([sys.executable, "-m", "stdchk.mpi", *map(str, words)], env=daemon.environment, cwd=daemon.folder,
                          capture_output=True, text=True, timeout=15 * PATIENCE)
    assert done.returncode == status, done.stdout + done.stderr + (daemon.folder / "log").read_text()
    return done.stdout


@needs_mpich
def test_an_unmodified_mpi_program_runs_on_clones(daemon, tmp_path):  # noqa: F811
    (tmp_path / "ring.c").write_text(RING)
    run("mpicc.mpich", "-o", tmp_path / "ring", tmp_path / "ring.c")
    said = mpi(daemon, "-n", 4, tmp_path / "ring", "word")
    found = re.findall(r"rank (\d) of 4 on (\S+) token (\d+) word", said)
    assert sorted((int(rank), int(token)) for rank, _, token in found) == [(0, 6), (1, 1), (2, 3), (3, 6)], said
    assert len({name for _, name, _ in found}) == 1  # their own, not the host's
    assert found[0][1] != socket.gethostname()
    wait_until(daemon.has_no_clones, "all processes of clones end")
    mpi(daemon, "-n", 2, tmp_path / "ring", "word", "fails", status=7)
    wait_until(daemon.has_no_clones, "all processes of clones end")


@needs_mpich
def test_ranks_begin_with_what_the_parent_has_loaded(daemon, tmp_path):  # noqa: F811
    header = run("mpicc.mpich", "-E", "-dM", "-include", "mpi.h", "-x", "c", "/dev/null").stdout
    long_long = re.search(r"#define MPI_LONG_LONG_INT \(\(MPI_Datatype\)(\w+)\)", header).group(1)
    (tmp_path / "work.py").write_text(textwrap.dedent(WORK).replace("LONG_LONG", long_long))
    (tmp_path / "load.py").write_text("import os\ndata = list(range(100_000))\nloaded_by = os.getpid()\n")
    said = mpi(daemon, "-n", 3, "--prepare", "load.py", "work.py", "good")
    found = re.findall(r"rank (\d) of 3 total (\d+) loaded by (\d+) argument good", said)
    assert sorted(int(rank) for rank, _, _ in found) == [0, 1, 2], said
    assert {total for _, total, _ in found} == {str(sum(range(100_000)))}
    assert len({parent for _, _, parent in found}) == 1  # all have the memory of one process
    mpi(daemon, "-n", 2, "--prepare", "load.py", "work.py", "fail", status=3)
    wait_until(daemon.has_no_clones, "all processes of clones end")


def test_a_program_that_is_no_mpiexec_is_refused(daemon):  # noqa: F811
    done = subprocess.run([sys.executable, "-m", "stdchk.mpi", "--mpiexec", "true", "-n", "2", "true"],
                          env=daemon.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "named 0 proxies for 2 clones" in done.stderr
    assert daemon.python("print(fork.request_ticket(40).count)") == 40
