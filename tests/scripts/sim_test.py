"""Tests scripts/sim with a stand-in for the simulator."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def run(tmp_path):
    def run(simulator):
        program = tmp_path / "tests" / "sim" / "pool-sim"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/bash\nwhile [ $# -gt 1 ]; do declare \"${1#--}=$2\"; shift 2; done\n" + simulator)
        program.chmod(0o755)
        return subprocess.run([ROOT / "scripts" / "sim", "--build", tmp_path, "--only", "pool-sim", "--seeds", "4",
                               "--timeout", "1"], capture_output=True, text=True, check=False, timeout=60)
    return run


def test_seeds_that_are_right_are_counted(run):
    done = run('echo "seed $seed: ok, killed clients 3, delays 5, trace 0"')
    assert done.returncode == 0
    assert "4 seeds of each simulator" in done.stdout
    assert "killed clients                                 12\n" in done.stdout


def test_a_seed_that_is_wrong_is_named_with_the_fewest_steps(run):
    done = run('[ $seed = 3 ] && [ $steps -ge 77 ] && echo "seed 3: WRONG" && exit 1; exit 0')
    assert done.returncode == 1
    assert "pool-sim --seed 3 --steps 77\n" in done.stdout


def test_a_seed_that_does_not_end_is_reported(run):
    done = run('[ $seed = 2 ] && exec sleep 50; exit 0')
    assert done.returncode == 1
    assert "seed 2: no end within 1 s\npool-sim: seed 2 does not end\n" in done.stdout
