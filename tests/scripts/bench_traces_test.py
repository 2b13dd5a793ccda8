"""Tests that bench/traces makes series of images for each program it names, and that images share the
expected parts."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))


def pieces(path):
    """The pieces of an image between separators, which are found even if they moved."""
    return {piece for piece in path.read_bytes().split(b"\x3f") if len(piece) > 16}


@pytest.mark.parametrize("program", ["sqlite", "python", "blast", "heat", "heat-files"])
def test_a_series_of_a_program(tmp_path, program):
    if program == "blast" and shutil.which("blastn") is None:
        pytest.skip("ncbi-blast+ is not installed")
    if not (BIN / "heat").exists() and program.startswith("heat"):
        pytest.skip("heat is built with an MPI")
    subprocess.run([ROOT / "bench" / "traces", tmp_path, "--program", program, "--images", "2", "--interval", "0.5", "--megabytes", "8",
                    "--bin", BIN], check=True, timeout=120)
    first, second = (tmp_path / f"{program}.N0.T{number}" for number in (1, 2))
    assert first.stat().st_size > 2 << 20
    if program == "heat-files":  # each value of the grid differs after five steps
        assert first.stat().st_size == second.stat().st_size
        return
    before, after = pieces(first), pieces(second)
    assert before != after
    assert len(before & after) > len(after) // 100
