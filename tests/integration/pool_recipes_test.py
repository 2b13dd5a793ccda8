"""Runs what docs/guide/recipes.md says, from the page itself: its commands, and the programs for which it is.

Every change runs all `stdchk` commands of the page, and restic. `scripts/check recipes` installs LAMMPS, GROMACS and
parallel HDF5 and runs them, too.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
from pool_directory_sets_test import lose, sets_of
from processes import PATIENCE, run, wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/guide/recipes.md"
ALL = bool(os.environ.get("STDCHK_TEST_RECIPES"))
MPIRUN = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2")


def sections():
    """Returns the lines of code of each section of the page, by its title."""
    found, title = {}, None
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            title = line[3:]
            found[title] = []
        elif title and line.startswith("    "):
            found[title].append(line[4:])
    return found


def commands(title, word):
    """Returns the commands of a section that begin with `word`, without their comments."""
    lines = [re.sub(r"\s{2,}#.*", "", line) for line in sections()[title] if line.startswith(word)]
    assert lines, (title, word)
    return lines


def in_pool(pool, line):
    """The page's command with this pool's paths."""
    return re.sub(r"(?<![\w/])P/", f"{pool.mount}/", line)


def shell(pool, line, **options):
    environment = pool.environment | {"PATH": f"{pool.environment['STDCHK_BIN']}:{os.environ['PATH']}"}
    environment |= options.pop("env", {})
    done = subprocess.run(["bash", "-c", in_pool(pool, line)], check=False, capture_output=True, text=True,
                          timeout=200 * PATIENCE, env=environment, **options)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n")
    assert done.returncode == 0, line
    return done


def need(*programs):
    absent = [each for each in programs if shutil.which(each) is None]
    if absent and ALL:
        pytest.fail(f"{', '.join(absent)} is absent; scripts/check recipes installs it")
    if absent:
        pytest.skip(f"{', '.join(absent)} is absent; scripts/check recipes installs it")


def needs_all():
    if not ALL:
        pytest.skip("a part of scripts/check recipes")


def wait_for_set(pool, name):
    wait_until(lambda: sets_of(pool, pool.mount / "run").get(name, {}).get("complete"), f"the set {name}", 15 * PATIENCE)


def drain_and_lose(pool):
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    lose(pool)


def test_each_stdchk_command_of_the_page_works(pool):
    pool.up(benefactors=1, memory="64M")
    lines = [line for code in sections().values() for line in code if line.startswith("stdchk ")]
    assert len(lines) >= 9
    for line in lines:
        shutil.rmtree(pool.mount / "run", ignore_errors=True)
        (pool.mount / "run").mkdir()
        if "suggest" in line:
            (pool.mount / "run" / "step-1").mkdir()
            (pool.mount / "run" / "step-1" / ".metadata").write_text("a checkpoint of PyTorch")
        said = shell(pool, line)
        assert "warning" not in (said.stdout + said.stderr).lower(), line


def test_restic(pool):
    need("restic")
    pool.up(benefactors=2, memory="128M")
    data = pool.folder / "data"
    data.mkdir()
    for i in range(40):
        (data / f"file{i}").write_bytes(os.urandom(100_000 * (i % 7)))
    words = {"env": {"RESTIC_PASSWORD": "secret", "XDG_CACHE_HOME": str(pool.folder / "cache")}}
    for line in commands("restic", "restic"):
        shell(pool, line.replace("/home/me/data", str(data)), **words)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    shell(pool, "stdchk safe P/backup")
    lose(pool)
    back = pool.folder / "back"
    shell(pool, f"restic -r {pool.drain}/backup restore latest --target {back}", **words)
    assert run("diff", "-r", data, f"{back}{data}").returncode == 0


LAMMPS = """
units lj
atom_style atomic
{start}
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 100
{restart}
run {steps}
"""
LAMMPS_START = """lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287"""


def test_lammps(pool):
    needs_all()
    need("lmp", MPIRUN[0])
    pool.up(benefactors=2, memory="128M")
    (pool.mount / "run").mkdir()
    (policy,) = commands("LAMMPS", "stdchk policy set")
    shell(pool, policy.replace("images=64", "images=2"))
    (restart,) = commands("LAMMPS", "restart")
    (read_restart,) = commands("LAMMPS", "read_restart")
    script = pool.folder / "in.melt"
    script.write_text(LAMMPS.format(start=LAMMPS_START, restart=in_pool(pool, restart), steps=2000))
    shell(pool, f"{shlex.join(MPIRUN)} lmp -in {script}", cwd=pool.folder)
    wait_for_set(pool, "melt.1000.*")
    wait_for_set(pool, "melt.2000.*")
    assert os.readlink(pool.mount / "run" / "latest") == "melt.2000.*"
    drain_and_lose(pool)
    # The next pool on the drain directory has the set; the run goes on from it.
    pool.up(benefactors=2, memory="128M")
    start = in_pool(pool, read_restart.replace("1000", os.readlink(pool.mount / "run" / "latest").split(".")[1]))
    script.write_text(LAMMPS.format(start=start, restart="", steps=100))
    said = shell(pool, f"{shlex.join(MPIRUN)} lmp -in {script}", cwd=pool.folder).stdout
    assert re.search(r"^\s*2100\s", said, re.MULTILINE), said


GROMACS = """integrator = md
dt = 0.002
nsteps = {steps}
coulombtype = PME
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
constraints = none
"""


def test_gromacs(pool):
    needs_all()
    need("gmx")
    pool.up(benefactors=2, memory="128M")
    (pool.mount / "run").mkdir()
    (policy,) = commands("GROMACS", "stdchk policy set")
    shell(pool, policy)
    first, again = commands("GROMACS", "gmx mdrun")
    (pool.folder / "topol.top").write_text(
        '#include "oplsaa.ff/forcefield.itp"\n#include "oplsaa.ff/spc.itp"\n[ system ]\nwater\n[ molecules ]\n')
    # The page's time between checkpoints is in minutes.
    first = first.replace("-cpt 15", "-cpt 0.01")
    assert "-cpt 0.01" in first
    for steps, line in ((1000, first), (1500, again)):
        (pool.folder / "md.mdp").write_text(GROMACS.format(steps=steps))
        if line is first:
            shell(pool, "gmx solvate -cs spc216.gro -box 2.2 2.2 2.2 -p topol.top -o conf.gro", cwd=pool.folder)
        shell(pool, "gmx grompp -f md.mdp -c conf.gro -p topol.top -o P/run/md.tpr -maxwarn 5", cwd=pool.folder)
        said = shell(pool, f"{line} -ntmpi 1 -ntomp 2 -nb cpu", cwd=pool.folder)
        if line is first:
            wait_until(lambda: os.path.islink(pool.mount / "run" / "latest"), "the first set", 15 * PATIENCE)
            assert re.fullmatch(r"md_step\d+\.cpt", os.readlink(pool.mount / "run" / "latest"))
            drain_and_lose(pool)
            pool.up(benefactors=2, memory="128M")
        else:
            assert "continuing from step 1000," in said.stderr


HDF5 = """
import sys
import h5py
from mpi4py import MPI
ranks = MPI.COMM_WORLD
with h5py.File(sys.argv[1], "w", driver="mpio", comm=ranks) as file:
    field = file.create_dataset("field", (ranks.size * 100_000,), dtype="i8")
    begin = ranks.rank * 100_000
    field[begin:begin + 100_000] = range(begin, begin + 100_000)
"""


def test_parallel_hdf5(pool):
    needs_all()
    need(MPIRUN[0])
    title = "Parallel HDF5 and MPI-IO"
    pool.up(benefactors=2, memory="128M")
    (pool.mount / "run").mkdir()
    (policy,) = commands(title, "stdchk policy set")
    shell(pool, policy)
    (line,) = commands(title, "mpirun")
    program = pool.folder / "program.py"
    program.write_text(HDF5)
    line = line.replace("mpirun -n 8", shlex.join(MPIRUN)).replace("./program", f"/usr/bin/python3 {program}")
    assert str(program) in line
    shell(pool, line)
    shell(pool, line.replace("0100", "0200"))
    wait_until(lambda: os.path.islink(pool.mount / "run" / "latest"), "the first set", 15 * PATIENCE)
    wait_until(lambda: os.readlink(pool.mount / "run" / "latest") == "state.0200.h5", "the second set", 15 * PATIENCE)
    drain_and_lose(pool)
    check = ("import h5py, numpy; field = h5py.File('{}')['field'][:]; "
             "assert (field == numpy.arange(200_000)).all()").format(pool.drain / "run" / "latest")
    shell(pool, f"/usr/bin/python3 -c {shlex.quote(check)}")
