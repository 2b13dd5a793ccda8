"""Tests libscr and libveloc-client: MPI programs written for SCR and VeloC checkpoint in a real pool."""

import os
import pathlib
import re
import shutil

import pytest
from processes import BIN, ROOT, run, wait_until

SHIMS = pathlib.Path(os.environ.get("STDCHK_SHIMS", (BIN / "stdchk").resolve().parents[1] / "shims"))
PROGRAMS = pathlib.Path(__file__).parent / "shims"
RANKS = 3
MPIS = [pytest.param(name, marks=pytest.mark.skipif(
    shutil.which(f"mpicc.{name}") is None or not (SHIMS / name / "libscr.so").exists(), reason=f"{name} is not there"))
    for name in ("mpich", "openmpi")]


class Launcher:
    """Builds programs with one MPI, and runs them."""

    def __init__(self, mpi, folder):
        self.mpi, self.folder = mpi, folder

    def build(self, source, library, fortran=False):
        program = self.folder / f"{source.replace('.', '_')}.{self.mpi}"
        if not program.exists():
            where = SHIMS / self.mpi
            run(f"{'mpif90' if fortran else 'mpicc'}.{self.mpi}", "-O1", "-I", ROOT / "shims" / "scr", "-I",
                ROOT / "shims" / "veloc", "-I", SHIMS, "-o", program, PROGRAMS / source, "-L", where, f"-l{library}",
                f"-Wl,-rpath,{where}")
        return program

    def run(self, *words, check=True, cwd=None, **settings):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SCR_", "OMPI_", "PMI", "SLURM_"))}
        environment |= {name: str(value) for name, value in settings.items()}
        environment["UCX_NET_DEVICES"] = "lo"  # other tests on this machine add and remove interfaces
        start = ["--oversubscribe", "--allow-run-as-root"] if self.mpi == "openmpi" else []
        return run(f"mpiexec.{self.mpi}", *start, "-n", RANKS, *words, check=check, env=environment, cwd=cwd)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return tmp_path_factory.mktemp("shims")


@pytest.fixture(params=MPIS)
def launcher(request, built):
    return Launcher(request.param, built)


@pytest.fixture(scope="module")
def up(module_pool):
    module_pool.up(benefactors=2, memory="128M")
    return module_pool


def prefix_of(pool, launcher, name):
    folder = pool.mount / f"{name}.{launcher.mpi}"
    folder.mkdir()
    return folder


def complete_sets(pool, folder):
    text = pool.stdchk("set", "list", folder).stdout
    return text.count("complete") - text.count("incomplete")


def test_a_program_of_scr_restarts_from_the_last_complete_checkpoint(up, launcher):
    program, prefix = launcher.build("scr_steps.c", "scr"), prefix_of(up, launcher, "scr")
    first = launcher.run(program, 3, SCR_PREFIX=prefix)
    assert "restart step 0 dataset none" in first.stdout and "step 3 saved" in first.stdout
    assert first.stderr.count("SCR_FLUSH_WIDTH") == 1  # named once, by one rank
    broken = launcher.run(program, 3, "die", 5, check=False, SCR_PREFIX=prefix)
    assert broken.returncode != 0 and "restart step 3 dataset timestep.3" in broken.stdout, broken.stdout + broken.stderr
    assert "step 5 saved" not in broken.stdout
    again = launcher.run(program, 2, "invalid", 5, SCR_PREFIX=prefix)
    assert "restart step 4 dataset timestep.4" in again.stdout, again.stdout + again.stderr
    assert "step 5 dropped" in again.stdout and "step 6 saved" in again.stdout
    # Each complete checkpoint has a directory. The dropped and the broken checkpoint have none.
    sets = prefix / "scr" / "checkpoints"
    assert sorted(entry.name.split(".", 2)[2] for entry in sets.glob("set.*")) == [f"timestep.{step}" for step in (1, 2, 3, 4, 6)]
    newest = next(sets.glob("set.*.timestep.6"))
    wait_until(lambda: os.path.lexists(sets / "latest") and os.readlink(sets / "latest") == newest.name, "the link latest")


def test_a_restart_that_fails_takes_the_checkpoint_before(up, launcher):
    program, prefix = launcher.build("scr_steps.c", "scr"), prefix_of(up, launcher, "older")
    launcher.run(program, 3, SCR_PREFIX=prefix, SCR_CHECKPOINT_INTERVAL=1)
    next((prefix / "scr" / "checkpoints").glob("set.*.timestep.3/timestep.3/rank_2.bin")).unlink()
    assert "restart step 2 " in launcher.run(program, 0, SCR_PREFIX=prefix).stdout
    assert "restart step 1 " in launcher.run(program, 0, SCR_PREFIX=prefix, SCR_CURRENT="timestep.1").stdout
    launcher.run(program, 0, "drop", "timestep.2", SCR_PREFIX=prefix, SCR_CURRENT="timestep.1")
    assert "restart step 1 " in launcher.run(program, 0, SCR_PREFIX=prefix).stdout
    launcher.run(program, 0, "delete", "timestep.1", SCR_PREFIX=prefix)
    assert "restart step 0 " in launcher.run(program, 0, SCR_PREFIX=prefix).stdout


def test_settings_of_scr_count(up, launcher):
    program, prefix = launcher.build("scr_steps.c", "scr"), prefix_of(up, launcher, "settings")
    every = launcher.run(program, 6, SCR_PREFIX=prefix, SCR_CHECKPOINT_INTERVAL=3)
    assert re.findall(r"step (\d) saved", every.stdout) == ["3", "6"]
    # The file halt asks for the end: after the next checkpoint.
    (prefix / "scr" / "checkpoints" / "halt").touch()
    halted = launcher.run(program, 6, SCR_PREFIX=prefix, SCR_HALT_ENABLED=0)
    assert re.findall(r"step (\d) saved", halted.stdout) == ["7"]
    ended = launcher.run(program, 6, SCR_PREFIX=prefix)
    assert "step 8" not in ended.stdout and "ends here" in ended.stderr
    (prefix / "scr" / "checkpoints" / "halt").unlink()
    (prefix / ".scrconf").write_text("# of this job\nSCR_CACHE_SIZE=2  # sets\nSCR_FLUSH=4\nSCR_CHECKPOINT_SECONDS=soon\n")
    named = launcher.run(program, 1, SCR_PREFIX=prefix)
    assert "SCR_CHECKPOINT_SECONDS is not a number" in named.stderr
    sets = prefix / "scr" / "checkpoints"
    wait_until(lambda: len(list(sets.glob("set.*"))) == 2, "two sets")
    assert os.getxattr(sets, "user.stdchk.policy.drain-every") == b"4"


def test_a_program_of_scr_in_fortran(up, launcher):
    program, prefix = launcher.build("scr_steps.f90", "scr", fortran=True), prefix_of(up, launcher, "fortran")
    assert "restart step 0" in launcher.run(program, SCR_PREFIX=prefix).stdout
    assert "restart step 2" in launcher.run(program, SCR_PREFIX=prefix).stdout
    assert len(list((prefix / "scr" / "output").glob("set.*"))) == 4


def test_a_program_of_veloc_that_protects_memory(up, launcher, tmp_path):
    program, folder = launcher.build("veloc_memory.c", "veloc-client"), prefix_of(up, launcher, "veloc")
    config = tmp_path / "veloc.cfg"
    config.write_text(f"scratch = /tmp/no\npersistent = {folder}\nmode = async\nmax_versions = 2\nec_interval = 5\n")
    first = launcher.run(program, config)
    assert "restart version -1" in first.stdout and first.stderr.count("ec_interval") == 1
    broken = launcher.run(program, config, "die", 4, check=False)
    assert broken.returncode != 0 and "restart version 2" in broken.stdout
    assert "restart version 3" in launcher.run(program, config).stdout
    assert "restart version 5" in launcher.run(program, config).stdout
    wait_until(lambda: len(list((folder / "veloc" / "memory").glob("version.*"))) == 2, "two versions")


def test_a_program_of_veloc_that_writes_files(up, launcher, tmp_path):
    program, folder = launcher.build("veloc_file.c", "veloc-client"), prefix_of(up, launcher, "files")
    config = tmp_path / "veloc.cfg"
    config.write_text(f"scratch = {folder}\npersistent = /tmp\nmode = sync\n")
    for version in (-1, 1, 2):
        assert f"restart version {version}" in launcher.run(program, config).stdout


def test_without_a_mounted_pool_programs_are_told(launcher, tmp_path):
    done = launcher.run(launcher.build("scr_steps.c", "scr"), 1, check=False, SCR_PREFIX=tmp_path)
    assert done.returncode == 4 and "is a directory in a mounted pool of stdchk" in done.stderr
    config = tmp_path / "veloc.cfg"
    config.write_text("scratch = /tmp\npersistent = /tmp\nmode = sync\n")
    done = launcher.run(launcher.build("veloc_memory.c", "veloc-client"), config, check=False)
    assert done.returncode == 4 and "is a directory in a mounted pool of stdchk" in done.stderr


def test_a_later_pool_on_the_drain_directory_has_the_checkpoint(pool, launcher, tmp_path):
    program = launcher.build("scr_steps.c", "scr")
    memory = launcher.build("veloc_memory.c", "veloc-client")
    pool.up(benefactors=2, memory="64M")
    prefix = pool.mount / "run"
    config = tmp_path / "veloc.cfg"
    config.write_text(f"scratch = /tmp\npersistent = {prefix}\nmode = sync\n")
    prefix.mkdir()
    launcher.run(program, 2, SCR_PREFIX=prefix)
    launcher.run(memory, config)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    pool.down()
    pool.up(benefactors=2, memory="64M")
    assert "restart step 2 dataset timestep.2" in launcher.run(program, 1, SCR_PREFIX=prefix).stdout
    assert "restart version 2" in launcher.run(memory, config).stdout


def test_the_example_of_the_guide_runs(up, launcher, tmp_path):
    page = (ROOT / "docs/guide/scr-veloc.md").read_text()
    source, commands = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL).group(1) for kind in ("c", "sh"))
    (tmp_path / "steps.c").write_text(source)
    commands = (commands.replace("/mnt/pool/run", str(prefix_of(up, launcher, "guide")))
                .replace("/usr/include/stdchk/shims", str(ROOT / "shims" / "scr"))
                .replace("/usr/lib/stdchk/mpich", str(SHIMS / launcher.mpi))
                .replace("mpicc ", f"mpicc.{launcher.mpi} ")
                .replace("mpiexec ", f"mpiexec.{launcher.mpi} " +
                         ("--oversubscribe --allow-run-as-root " if launcher.mpi == "openmpi" else "")))
    done = run("sh", "-ec", commands, cwd=tmp_path, env=os.environ | {"UCX_NET_DEVICES": "lo"})
    assert re.findall(r"begins at step (\d+)", done.stdout) == ["0", "3"]
