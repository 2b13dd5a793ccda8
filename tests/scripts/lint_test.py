"""Tests which files scripts/lint gives to clang-tidy, and in which order."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "LINT_"))}


class Repository:
    """A new repository with scripts/lint in it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "lint", folder / "scripts")
        self.git("init", "-q", "-b", "main")

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=self.folder,
                       check=True, timeout=20)

    def change(self, *names):
        for name in names:
            with open(self.folder / name, "a", encoding="utf-8") as file:
                file.write("// more\n")

    def commit(self, *names):
        self.change(*names)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    def changed(self, **environment):
        done = subprocess.run([self.folder / "scripts" / "lint", "--changed"], capture_output=True, text=True,
                              check=True, timeout=20, env=CLEAN | environment)
        return done.stdout.split()


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_the_files_of_the_last_commits_come_first_whatever_their_times(repository):
    old = [f"old{number:02}.cpp" for number in range(20)]
    repository.commit("oldest.cpp")
    repository.commit(*old)
    for name in ("b.cpp", "a.cpp", "gone.cpp", "page.md"):
        repository.commit(name)
    (repository.folder / "gone.cpp").unlink()
    repository.commit("b.cpp")
    for number, name in enumerate(old):  # equal times, as a checkout leaves them, tell nothing
        os.utime(repository.folder / name, (2_000_000_000 + number,) * 2)
    chosen = repository.changed()
    assert chosen[:2] == ["b.cpp", "a.cpp"]
    assert set(chosen[2:]) == {"oldest.cpp", *old}
    repository.change("old19.cpp")
    assert repository.changed()[:3] == ["old19.cpp", "b.cpp", "a.cpp"]


def test_nothing_that_is_older_than_the_base_is_looked_at(repository):
    repository.commit("old.cpp")
    repository.git("tag", "base")
    repository.commit("new.cpp")
    assert repository.changed(LINT_BASE="base") == ["new.cpp"]
    for _ in range(10):
        repository.commit("page.md")
    assert repository.changed() == []


def test_a_checkout_of_one_commit_is_looked_at(repository, tmp_path):
    repository.commit("a.cpp")
    repository.commit("b.cpp")
    copy = tmp_path / "copy"
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.folder}", str(copy))
    done = subprocess.run([copy / "scripts" / "lint", "--changed"], capture_output=True, text=True, check=True,
                          timeout=20, env=CLEAN)
    assert set(done.stdout.split()) == {"a.cpp", "b.cpp"}
