"""Tests that docs/guide/options.md is what scripts/option-tables makes of the programs' --help."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))
pytestmark = pytest.mark.skipif(not (BIN / "stdchk").exists(), reason="not built: stdchk")


def check(root):
    return subprocess.run([root / "scripts" / "option-tables", "--check", BIN.resolve()], capture_output=True, text=True,
                          timeout=120)


def copy_of_page(folder, change=lambda page: page):
    """Copies the script and a changed page to a new tree."""
    (folder / "scripts").mkdir()
    (folder / "docs" / "guide").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "option-tables", folder / "scripts")
    page = (ROOT / "docs" / "guide" / "options.md").read_text(encoding="utf-8")
    (folder / "docs" / "guide" / "options.md").write_text(change(page), encoding="utf-8")
    return folder


def test_the_page_of_options_is_what_help_says():
    done = check(ROOT)
    assert done.returncode == 0, done.stderr


def test_another_default_on_the_page_is_found(tmp_path):
    done = check(copy_of_page(tmp_path, lambda page: page.replace("| 512.0 MiB |", "| 1.0 GiB |")))
    assert done.returncode == 1 and "run scripts/option-tables" in done.stderr


def test_the_page_has_each_command_and_daemon():
    page = (ROOT / "docs" / "guide" / "options.md").read_text(encoding="utf-8")
    for name in ("stdchk up", "stdchk safe", "stdchk member-key", "stdchk-manager", "stdchk-benefactor", "stdchk-mount"):
        assert f"\n## {name}\n" in page
