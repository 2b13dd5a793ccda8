"""Tests that the places of the bugs of tests/sim/planted.py exist."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "sim"))
import planted  # noqa: E402


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: f"{bug.rule}: {bug.what}")
def test_the_sources_have_the_place_of_a_planted_bug_once(bug):
    assert (ROOT / bug.file).read_text().count(bug.right) == 1
