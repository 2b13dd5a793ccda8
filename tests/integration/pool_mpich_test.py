"""Tests programs of MPICH, an MPI other than the Open MPI that the project was built with."""

import re
import shutil

import pytest
from processes import BIN, ROOT, leads_to, run, wait_until

MPICXX, MPIRUN = shutil.which("mpicxx.mpich"), shutil.which("mpirun.mpich")
pytestmark = pytest.mark.skipif(not (MPICXX and MPIRUN), reason="mpich and libmpich-dev are not installed")
RANKS, STEPS, EVERY = 3, 12, 4


@pytest.fixture(scope="module")
def heat(tmp_path_factory):
    """examples/heat, built with MPICH."""
    program = tmp_path_factory.mktemp("mpich") / "heat"
    sources = sorted((ROOT / "examples" / "heat").glob("*.cpp"))
    run(MPICXX, "-std=c++20", "-O1", "-I", ROOT, "-o", program, *sources, seconds=180)
    libraries = run("ldd", program).stdout
    assert "libmpich" in libraries and "libmpi.so" not in libraries
    return program


def ranks(pool, *words, check=True):
    """Runs ranks by MPICH's launcher. They know their rank from PMI_RANK, and see no variable of another
    launcher."""
    environment = {name: value for name, value in pool.environment.items()
                   if not name.startswith(("OMPI_", "PMI", "SLURM_", "PBS_"))}
    environment["UCX_NET_DEVICES"] = "lo"  # other tests on this machine add and remove interfaces
    return run(MPIRUN, "-n", RANKS, *words, check=check, env=environment)


def wait_latest(folder, name):
    """The manager moves the link only after the last close() has returned."""
    link = folder / "latest"
    wait_until(lambda: leads_to(link, name), f"the link to {name}")


def result_of(text):
    return re.findall(r"result .*checksum=(\w+)", text)


def test_a_program_of_mpich_saves_in_a_pool_and_restarts_from_it(pool, heat, tmp_path):
    words = [heat, "--cells", 16, "--steps", STEPS, "--every", EVERY, "--directory"]
    undisturbed = result_of(ranks(pool, *words, tmp_path / "plain").stdout)
    assert len(undisturbed) == 1
    pool.up("--policy", f"images={RANKS}", benefactors=2, memory="64M", drain=False)
    folder = pool.mount / "heat"
    broken = ranks(pool, *words, folder, "--kill-step", STEPS, "--kill-rank", 1, "--kill-bytes", 100, check=False)
    assert broken.returncode != 0
    newest = f"heat.*.T{STEPS - EVERY}"
    wait_latest(folder, newest)
    # Each rank loads its own image, then becomes the program, which still is a rank of this MPI.
    local = tmp_path / "local"
    local.mkdir()
    restart = [BIN / "stdchk", "restart", "--run", "again", "--to", local, folder, "--"]
    done = ranks(pool, *restart, *words, folder)
    assert f"{newest}: {RANKS} images loaded by {RANKS} ranks" in done.stderr
    assert f"restart step={STEPS - EVERY}" in done.stdout
    assert result_of(done.stdout) == undisturbed
    for rank in range(RANKS):
        name = f"heat.N{rank}.T{STEPS - EVERY}"
        assert (local / name).read_bytes() == (folder / name).read_bytes()
    wait_latest(folder, f"heat.*.T{STEPS}")


def test_ranks_of_mpich_need_a_name_that_they_share(pool, heat):
    pool.up(benefactors=1, memory="64M", drain=False)
    done = ranks(pool, BIN / "stdchk", "restart", pool.mount, check=False)
    assert done.returncode != 0 and "--run is needed" in done.stderr
