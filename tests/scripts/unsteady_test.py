"""Tests reports of unsteady tests: a test that fails and then passes is named. The run fails when there are more than three such tests."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

ONCE = """
import pathlib
MARK = pathlib.Path(__file__).with_suffix(".mark")

def test_that_fails_once():
    first = not MARK.exists()
    MARK.touch()
    assert not first, "the first attempt"

def test_that_passes():
    pass
"""
TWICE = "def test_that_fails_twice():\n    assert False\n"


def attempt(folder, name, text, again="1"):
    """Runs a file of tests as scripts/check does. Returns its exit status."""
    (folder / f"{name}.py").write_text(text)
    environment = dict(os.environ, STDCHK_TEST_AGAIN=again, PYTHONPATH=str(ROOT / "tests"))
    return subprocess.run([ROOT / "scripts" / "pytest-file", folder, f"{name}.py", "-p", "conftest"], cwd=folder,
                          env=environment, stdout=subprocess.PIPE, check=False, text=True)


def count(folder):
    return subprocess.run([sys.executable, ROOT / "scripts" / "count-results", folder],
                          stdout=subprocess.PIPE, check=False, text=True)


def test_a_test_that_passes_at_its_second_attempt_is_named_with_its_first_failure(tmp_path):
    done = attempt(tmp_path, "once_test", ONCE)
    assert done.returncode == 0 and "AssertionError: the first attempt" in done.stdout
    counted = count(tmp_path)
    assert counted.returncode == 0
    named, total = counted.stdout.splitlines()
    assert named == "UNSTEADY: once_test::test_that_fails_once failed and passed at its second attempt"
    assert total == "2 passed, 0 failed, 0 skipped"


def test_without_a_second_attempt_it_fails(tmp_path):
    assert attempt(tmp_path, "once_test", ONCE, again="").returncode == 1
    assert count(tmp_path).returncode == 1


def test_a_test_that_fails_twice_fails(tmp_path):
    assert attempt(tmp_path, "twice_test", TWICE).returncode == 1
    counted = count(tmp_path)
    assert counted.returncode == 1 and counted.stdout == "0 passed, 1 failed, 0 skipped\n"


def test_many_unsteady_tests_fail(tmp_path):
    for name in "abcd":
        assert attempt(tmp_path, f"{name}_test", ONCE).returncode == 0
    counted = count(tmp_path)
    assert counted.returncode == 1 and counted.stdout.endswith("4 passed, 4 failed, 0 skipped\n")


def test_the_failed_tests_of_meson_are_named_as_meson_takes_them(tmp_path):
    log = tmp_path / "release.json"
    log.write_text('{"name": "stdchk:unit / transport mem", "result": "FAIL"}\n'
                   '{"name": "stdchk / mount over memory", "result": "TIMEOUT"}\n'
                   '{"name": "stdchk:unit / core", "result": "OK"}\n{"name": "golden", "result": "SKIP"}\n')
    named = subprocess.run([sys.executable, ROOT / "scripts" / "count-results", "--failed", log], stdout=subprocess.PIPE,
                           check=True, text=True)
    assert named.stdout.splitlines() == ["transport mem", "mount over memory"]
