"""Tests that scripts/attacks finds rows of the tables of attacks whose test does not exist."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = "| party | what bounds it | which test attacks |\n|---|---|---|\n"


def check(tmp_path, *rows, head=HEAD):
    document = tmp_path / "attacks.md"
    document.write_text(head + "".join(f"| somebody | something | {row} |\n" for row in rows))
    return subprocess.run([ROOT / "scripts/attacks", document], capture_output=True, text=True, check=False)


def test_all_rows_of_the_document_name_tests_that_exist():
    done = subprocess.run([ROOT / "scripts/attacks"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_tests_of_each_kind_are_found(tmp_path):
    done = check(tmp_path, "`tls-fuzz`", "`tcp_test.cpp::who offers no key`",
                 "`cases_stranger.cpp::a stranger is told no table of keys`",
                 "`attacks_test.py::test_tests_of_each_kind_are_found`, `tcp-fuzz`")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("cell", ["none yet", "`absent-fuzz`", "`tcp_test.cpp`", "`tcp_test.cpp::nobody tests this`",
                                  "`absent_test.cpp::who`", "`attacks_test.py::test_tests_of`",
                                  "`tls-fuzz`, `absent-fuzz`"])
def test_a_row_without_a_test_is_named(tmp_path, cell):
    done = check(tmp_path, "`tls-fuzz`", cell)
    assert done.returncode == 1
    assert done.stdout.startswith("attacks.md:4: ") and done.stdout.count("\n") == 1


def test_a_document_without_such_a_table_is_no_success(tmp_path):
    assert check(tmp_path, "`tls-fuzz`", head="| a | b | c |\n|---|---|---|\n").returncode == 1
