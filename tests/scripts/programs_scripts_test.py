"""Tests scripts/wheel, scripts/object-stores and scripts/packaging where something that they need is absent: each says what,
and leaves nothing behind."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    """A copy of the scripts, without a build."""
    (tmp_path / "scripts").mkdir()
    for name in ("wheel", "object-stores", "packaging", "packages.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    (tmp_path / "meson.build").write_text("  version : '0.2.0',\n")
    return tmp_path


def run(tree, script, *arguments):
    environment = {name: value for name, value in os.environ.items() if name not in ("STDCHK_BIN", "STDCHK_TEST_MOTO")}
    return subprocess.run([tree / "scripts" / script, *arguments], env=environment | {"TMPDIR": str(tree), "HOME": str(tree)},
                          capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("script", ["wheel", "object-stores"])
def test_without_a_build_a_script_says_so_before_it_makes_anything(tree, script):
    done = run(tree, script)
    assert (done.returncode, done.stderr) == (1, f"scripts/{script}: build first: scripts/build\n")
    assert {path.name for path in tree.iterdir()} == {"scripts", "meson.build"}


@pytest.mark.skipif(os.geteuid() != 0, reason="root only")
@pytest.mark.parametrize("part", ["chroot", "image"])
def test_without_packages_a_part_of_packaging_says_how_to_make_them(tree, part):
    done = run(tree, "packaging", part)
    assert done.returncode == 1 and "make them with: scripts/packaging deb" in done.stderr


def test_the_help_of_packaging_ends_with_its_variables(tree):
    done = run(tree, "packaging")
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("             MIRROR ")


def test_the_smoke_test_of_packages_has_no_check_that_cannot_fail():
    """`set -e` ignores a command with `!` in front of it."""
    text = (ROOT / "scripts" / "packaging").read_text()
    smoke = text[text.index("smoke() {"):text.index("chroot_test() {")]
    assert not any(line.strip().startswith("! ") for line in smoke.splitlines())
