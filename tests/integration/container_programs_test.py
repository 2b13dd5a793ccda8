"""Runs programs of Debian's packages in containers. Each is saved, loses a node, is killed and restarted, and must have the
result of an undisturbed run. `scripts/check container` runs them; they need packages of scripts/trixie-root and some minutes.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest
from boxes import TRIXIE, Base, Pool, job, why_not
from processes import ROOT, run

REASON = why_not() or (None if os.environ.get("STDCHK_TEST_CONTAINER") else "a part of scripts/check container")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
RANKS = 3
SECONDS = 600  # a program alone takes about a quarter of a minute on an idle machine

FILES = {
    "melt.in": """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 16 0 16 0 16
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 100
thermo_modify flush yes format float %.15g
run ${steps}
""",
    "water.mdp": """
integrator = md
nsteps = 500
dt = 0.001
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.85
rvdw = 0.85
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = yes
gen-seed = 7
ld-seed = 7
nstenergy = 200
nstlog = 200
""",
    "water.top": """#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
""",
    "gromacs.sh": """
cd /tmp && cp /opt/stdchk-test/water.tpr . &&
gmx_mpi mdrun -s water.tpr -deffnm w -reprod -dlb no -ntomp 1 -notunepme -nb cpu >mdrun.out 2>&1 || { tail mdrun.out; exit 1; }
[ "$OMPI_COMM_WORLD_RANK" != 0 ] || echo "RESULT $(md5sum <w.gro)"
""",
    "hpl.sh": """
cd /tmp && cp /opt/stdchk-test/hpccinf.txt . && hpcc || exit 1
[ "$OMPI_COMM_WORLD_RANK" != 0 ] || echo "RESULT $(grep -c PASSED hpccoutf.txt) passed, $(grep -c FAILED hpccoutf.txt)" \\
  "failed: $(grep -oE '\\|\\|Ax-b.*' hpccoutf.txt)"
""",
    "sum.py": """
import sys
import time
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
held = numpy.random.default_rng(world.rank).random(1 << 16)
for step in range(int(sys.argv[1])):
    all_of_them = numpy.empty_like(held)
    world.Allreduce(held, all_of_them)
    held = numpy.sqrt(held * all_of_them / world.size) + 1e-3 * numpy.roll(held, step)
    words = world.allgather({"rank": world.rank, "first": float(held[step])})
    time.sleep(0.05)
    if world.rank == 0 and step % 100 == 0:
        print("step", step, flush=True)
print_of = world.gather(held.sum().hex())
if world.rank == 0:
    print("RESULT", *print_of)
""",
    "redis.sh": """
redis-server --port 7000 --save "" --daemonize no >/tmp/redis.log 2>&1 &
until redis-cli -p 7000 ping >/dev/null 2>&1; do sleep 0.1; done
for i in $(seq $1); do
  [ "$(redis-cli -p 7000 incr k)" = $i ] || { echo "WRONG at $i"; exit 1; }
  redis-cli -p 7000 rpush list "$i-$(($i * 7919 % 104729))" >/dev/null
  sleep 0.08
done
echo "RESULT $(redis-cli -p 7000 lrange list 0 -1 | md5sum)"
""",
    "postgres.sh": """
bin=$(ls -d /usr/lib/postgresql/*/bin) && mkdir -p /tmp/db /var/run/postgresql && chown postgres /tmp/db /var/run/postgresql
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
as $bin/initdb -D /tmp/db >/tmp/initdb.log 2>&1 || { cat /tmp/initdb.log; exit 1; }
as $bin/postgres -D /tmp/db -c dynamic_shared_memory_type=posix >/tmp/postgres.log 2>&1 &
until as psql -qc 'create table t(i int, v bigint)' 2>/dev/null; do sleep 0.2; done
for i in $(seq $1); do
  as psql -qc "insert into t values ($i, coalesce((select sum(v) from t), 0) % 1000003 + $i)" || { tail /tmp/postgres.log; exit 1; }
  sleep 0.15
done
echo "RESULT $(as psql -Atc 'select count(*), sum(v), max(i) from t')"
""",
}


def hpl_input(root):
    """The example of the package with small sizes and 1 x 3 processes."""
    found = next(root.glob("usr/share/doc/hpcc/**/_hpccinf.txt*"), None)
    assert found is not None, "hpcc's package has no example of its input"
    text = subprocess.run(["zcat" if found.suffix == ".gz" else "cat", found], capture_output=True, text=True, check=True).stdout
    lines = text.splitlines()
    for mark, value in (("Ns", "600"), ("NBs", "40"), ("Ps", "1"), ("Qs", "3")):
        at = next(number for number, line in enumerate(lines) if re.search(rf"\s{mark}$", line))
        lines[at] = f"{value}  {mark}"
    return "\n".join(lines) + "\n"


class Programs(Base):
    """The base with the packages and the files of the programs."""

    def __init__(self):
        wanted = [word for name in ("lammps", "gromacs", "hpcc", "servers", "g++") for word in ("--with", name)]
        made = subprocess.run([TRIXIE, *wanted], capture_output=True, text=True, timeout=1800, check=False)
        if made.returncode != 0:
            pytest.skip(made.stderr.strip().splitlines()[-1])
        super().__init__()
        self.folder = self.root / "opt" / "stdchk-test"
        for name, text in FILES.items():
            (self.folder / name).write_text(text)
        (self.folder / "hpccinf.txt").write_text(hpl_input(self.root))
        shutil.copytree(ROOT / "examples" / "heat", self.folder / "examples" / "heat", dirs_exist_ok=True)
        run("chroot", self.root, "sh", "-c", "cd /opt/stdchk-test && mpicxx.mpich -std=c++20 -O2 -I. -o heat examples/heat/*.cpp",
            seconds=300)
        run("chroot", self.root, "sh", "-c", "cd /opt/stdchk-test && rm -f water.gro && gmx -quiet solvate -cs spc216 -box "
            "1.9 1.9 1.9 -o water.gro -p water.top && gmx -quiet grompp -f water.mdp -c water.gro -p water.top -o water.tpr "
            "-po mdout.mdp -maxwarn 5", seconds=300)


@pytest.fixture(scope="module")
def base():
    return Programs()


@pytest.fixture
def pool(tmp_path):
    with Pool(tmp_path, "--drain", tmp_path / "pfs") as made:
        yield made


def mpi(*words):
    return ["-n", RANKS, "--", "mpiexec.openmpi", "-n", str(RANKS), *words]


def alone(*words):
    return ["-n", 1, "--", *words]


def of_lammps(text):
    """Returns LAMMPS's thermodynamic output, with all digits. After a restart from an older set, lines occur twice."""
    return sorted(set(re.findall(r"^ +\d+ +[-\d.e+ ]+$", text, re.MULTILINE)))


def of_result(text):
    return re.findall(r"^RESULT .*", text, re.MULTILINE)


def of_heat(text):
    return re.findall(r"^result step=.*", text, re.MULTILINE)


PROGRAMS = {
    "lammps": (mpi("lmp", "-in", "/opt/stdchk-test/melt.in", "-log", "none", "-var", "steps", "800"), of_lammps),
    "gromacs": (mpi("sh", "/opt/stdchk-test/gromacs.sh"), of_result),
    "hpl": (mpi("sh", "/opt/stdchk-test/hpl.sh"), of_result),
    "heat": (["-n", RANKS, "--", "mpiexec.mpich", "-n", str(RANKS), "/opt/stdchk-test/heat", "--cells", "96", "--steps", "5000"],
             of_heat),
    "mpi4py": (mpi("python3", "/opt/stdchk-test/sum.py", "300"), of_result),
    "redis": (alone("sh", "/opt/stdchk-test/redis.sh", "200"), of_result),
    "postgresql": (alone("sh", "/opt/stdchk-test/postgres.sh", "100"), of_result),
}


def has_resource_right():
    """CRIU asks for limits of processes of other users, such as those of PostgreSQL: prlimit(2)."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"CapEff:\s*(\w+)", status)[1], 16) >> 24 & 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_disturbed_run_has_the_result_of_an_undisturbed_one(pool, base, program):
    if program == "postgresql" and not has_resource_right():
        pytest.skip("root of this machine lacks CAP_SYS_RESOURCE, so CRIU cannot save processes of the user postgres")
    words, result_of = PROGRAMS[program]
    with job(pool, base, *words) as straight:
        assert straight.wait(SECONDS) == 0, f"{straight.out}\n{straight.err}"
        expected = result_of(straight.out)
        assert expected, straight.out
    with job(pool, base, "--nodes", 3, "--spares", 1, "--lease", 2, "--every", "2", *words) as first:
        first.wait_for("set T2 is complete", "err", 100)
        os.kill(first.nodes()[1], signal.SIGKILL)
        first.wait_for("runs again from set", "err", 100)
        taken = first.err.count("is complete after")
        first.wait_for(f"set T{taken + 1} is complete", "err", 100)
        first.kill()
        with job(pool, base, first.name, command="restart", name=first.name) as second:
            assert second.wait(SECONDS) == 0, f"{second.out}\n{second.err}"
    assert result_of(first.out + "\n" + second.out) == expected
