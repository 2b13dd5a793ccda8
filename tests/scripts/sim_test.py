"""Tests scripts/sim with a stand-in for the simulator."""

import datetime
import pathlib
import re
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


def test_a_good_run_prints_its_line_of_the_table_of_counts(run):
    done = run('echo "seed $seed: ok, killed clients 300, delays 5000, overtaken messages 200, trace 0"')
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("|")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert cells[0] == datetime.date.today().isoformat()
    assert cells[1] in (head, f"{head}-dirty")
    assert cells[2:6] == ["pool-sim", "1 to 4", "22,000", "1,200"]
    assert re.fullmatch(r"\d+\.\d", cells[6])
    table = (ROOT / "docs" / "internals" / "tests.md").read_text()
    assert "| date | commit | simulators | seeds | faults | without delays and overtaking | minutes |\n" in table


def test_a_run_with_a_wrong_seed_prints_no_line(run):
    assert not re.search(r"^\|", run('echo "seed $seed: WRONG, killed clients 3, trace 0"; exit 1').stdout, re.MULTILINE)


def test_a_seed_that_is_wrong_is_named_with_the_fewest_steps(run):
    done = run('[ $seed = 3 ] && [ $steps -ge 77 ] && echo "seed 3: WRONG" && exit 1; exit 0')
    assert done.returncode == 1
    assert "pool-sim --seed 3 --steps 77\n" in done.stdout


def test_a_seed_that_does_not_end_is_reported(run):
    done = run('[ $seed = 2 ] && exec sleep 50; exit 0')
    assert done.returncode == 1
    assert "seed 2: no end within 1 s\npool-sim: seed 2 does not end\n" in done.stdout
