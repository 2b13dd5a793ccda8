"""Tests that scripts/house finds large classes and long functions, and which of them its lint refuses."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIELDS = "\n".join(f"  int field_{number} = 0;" for number in range(21))
CALLS = "\n".join(f"  int call_{number}();" for number in range(41))
LINES = "\n".join("  count++;" for _ in range(70))


@pytest.fixture
def house(tmp_path):
    """A function that writes a source into a small repository, and returns what the lint says about the repository."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=20)

    def run(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        subprocess.run(["git", "add", name], cwd=tmp_path, check=True, timeout=20)
        return subprocess.run([ROOT / "scripts/house", "--lint", tmp_path], capture_output=True, text=True, timeout=60)
    run.folder = tmp_path
    return run


@pytest.mark.parametrize("text, found", [
    (f"namespace stdchk {{\nnamespace {{\nstruct Wide {{\n{FIELDS}\n}};\n}}\n}}\n", "Wide has 21 data members"),
    (f"namespace stdchk::core {{\nclass Wide {{\n{FIELDS}\n}};\n}}\n", "core::Wide has 21 data members"),
    (f"namespace stdchk {{\nnamespace {{\nclass Busy {{\n{CALLS}\n}};\n}}\n}}\n", "Busy has 41 functions"),
    (f"namespace stdchk {{\nnamespace {{\nvoid long_one() {{\n{LINES}\n}}\n}}\n}}\n", "long_one has 72 lines in a function"),
])
def test_the_lint_refuses_product_code_over_the_limits_also_in_anonymous_namespaces(house, text, found):
    done = house("core/base/large.cpp", text)
    assert done.returncode == 1 and f"house: {found}" in done.stderr, done.stderr


def test_the_lint_counts_overloads_once_and_neither_constructors_nor_operators(house):
    calls = "\n".join(f"  int call_{number}(); int call_{number}(int);" for number in range(40))
    done = house("core/base/large.h", f"class Busy {{\n  Busy();\n  ~Busy();\n  bool operator==(const Busy&) const;\n{calls}\n}};\n")
    assert done.returncode == 0, done.stderr


def test_the_lint_does_not_read_tests_but_the_list_has_them(house):
    done = house("tests/unit/large_test.cpp", f"namespace {{\nstruct Wide {{\n{FIELDS}\n}};\n}}\n")
    assert done.returncode == 0, done.stderr
    listed = subprocess.run([ROOT / "scripts/house", house.folder], capture_output=True, text=True, timeout=120)
    assert "21 members: Wide (tests/unit/large_test.cpp)" in listed.stderr, listed.stderr
    assert "| the same three in tests and benchmarks | 1, 0, 0 |" in listed.stdout
