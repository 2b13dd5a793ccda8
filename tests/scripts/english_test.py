"""Tests that scripts/english finds riddles."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "english", tmp_path / "scripts")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=20)
    return tmp_path


def lint(repository, name="", text=""):
    if name:
        (repository / name).write_text(text)
    subprocess.run(["git", "add", "-A"], cwd=repository, check=True, timeout=20)
    done = subprocess.run(["scripts/english", "--lint"], cwd=repository, capture_output=True, text=True, timeout=20)
    return done.returncode, done.stdout


def test_a_plain_comment_is_no_riddle(repository):
    assert lint(repository, "new.h", "/// A Window holds the bytes between write() and storage.\n") == (0, "")


@pytest.mark.parametrize("text", [
    "One that was there before is taken.",
    "It is so for what is not there any more of it and of all that are with it.",
    "The window " + "and the window " * 12 + "are full.",
])
def test_a_riddle_is_named(repository, text):
    status, said = lint(repository, "new.h", f"/// {text}\n")
    assert status == 1 and said.startswith("new.h:1: ")


RIDDLE = "What was there before is taken."


@pytest.mark.parametrize("name, text, line", [
    ("docstring.py", f'import os\n\n\ndef take():\n    """{RIDDLE}"""\n', 5),
    ("lower.py", f"# {RIDDLE.lower()}\n", 1),
    ("items.py", f"# The window has two parts:\n# - The first part is full.\n# - {RIDDLE}\n", 1),
    ("items.h", f"/// The window has two parts:\n/// - The first part is full.\n/// - {RIDDLE}\n", 1),
    ("numbers.h", f"/// The window has two parts:\n/// 1. The first part is full.\n/// 2. {RIDDLE}\n", 1),
    ("long_item.h", f"/// The window has two parts:\n/// - The first part is full.\n///   {RIDDLE}\n", 1),
    ("help.py", f"parser.add_argument('--take', help='{RIDDLE.lower()}')\n", 1),
    ("help_of_value.py", "parser.add_argument('--take', help=f'of {MOST} slots in a window')\n", 1),
    ("script", f"#!/bin/bash\n# {RIDDLE}\n", 2),
    ("program", f'#!/usr/bin/env python3\n"""{RIDDLE}"""\n', 2),
    ("meson.build", f"# {RIDDLE}\n", 1),
    ("preload/calls.cpp", f'const char* text = "{RIDDLE}";\n', 1),
    ("shims/calls.cpp", f'const char* text = "{RIDDLE}";\n', 1),
    ("bench/results/speed.md", f"# Speed\n\n{RIDDLE}\n", 3),
    ("page.1", f".SH OPTIONS\n.TP\n.B \\-\\-take\n{RIDDLE}\n", 4),
])
def test_a_riddle_is_named_in_every_kind_of_file(repository, name, text, line):
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    status, said = lint(repository, name, text)
    assert (status, len(said.splitlines())) == (1, 1)
    assert said.startswith(f"{name}:{line}: begins with")


@pytest.mark.parametrize("name, text", [
    ("new.h", "int size;  ///< of a window in bytes\n"),
    ("script", "#!/bin/bash\n# Usage of the script:\n#   what is an example is no sentence\n"),
    ("data", f"{RIDDLE}\n"),
    ("program.py", 'text = "What was there before is taken."\n'),
    ("page.1", f".SH EXAMPLE\n.nf\n{RIDDLE}\n.fi\n.BR stdchk (1),\n.BR stdchk (3)\nshow more.\n"),
    ("shims/calls.cpp", 'std::string text = number + " of this number of ranks";\n'),
])
def test_phrases_and_examples_are_no_riddles(repository, name, text):
    (repository / name).parent.mkdir(exist_ok=True)
    assert lint(repository, name, text) == (0, "")


def test_a_page_is_examined_without_its_code(repository):
    page = ("# What is it\n\nThe pool is up.\n\n- What is not drained is lost.\n\n| a | What is seen is not told |\n|---|---|\n\n"
            "    What is code is not prose\n\n```\nWhat is fenced is not prose\n```\n")
    (repository / "bench/results").mkdir(parents=True)
    status, said = lint(repository, "bench/results/page.md", page)
    assert (status, [line.split(":")[1] for line in said.splitlines()]) == (1, ["5", "7"])


@pytest.mark.parametrize("page", ["README.md", "docs/guide/start.md", "docs/decisions/0001-a.md", "docs/decisions/README.md"])
def test_pages_of_every_folder_are_examined(repository, page):
    (repository / page).parent.mkdir(parents=True, exist_ok=True)
    status, said = lint(repository, page, "# Start\n\nWhat is not drained is lost.\n")
    assert (status, said.split(": ")[0]) == (1, f"{page}:3")


WORDS = "the pool keeps " * 5


@pytest.mark.parametrize("page", [
    "It installs programs in `bin`, and in `share` the folders: `a`, `b`, `c`, `d`, `e`, `f`, `g`, `h`, `i`, `j`, `k`, `l` and `m`, too.",
    f"First {WORDS}images. 24 nodes and {WORDS}images.",
    f"First {WORDS}images. stdchk-forkd and {WORDS}images.",
    f"First {WORDS}images. [docs/guide/fork.md](fork.md) and {WORDS}images.",
    "| who | what to do |\n|---|---|\n| who records a link | what is recorded |",
    "Each word has one meaning, in the documents and in the code.",
])
def test_a_good_sentence_of_a_page_is_no_riddle(repository, page):
    (repository / "docs/internals").mkdir(parents=True)
    assert lint(repository, "docs/internals/fork.md", f"# Fork\n\n{page}\n") == (0, "")


@pytest.mark.parametrize("page", [
    f"First {WORDS}images, and 24 nodes and {WORDS}images.",
    "It is so for what is not there any more of it and of all that are with it.",
    "- Those with a flag go on.",
])
def test_a_riddle_of_a_page_is_named(repository, page):
    (repository / "docs/internals").mkdir(parents=True)
    status, said = lint(repository, "docs/internals/fork.md", f"# Fork\n\n{page}\n")
    assert status == 1 and said.startswith("docs/internals/fork.md:3: ")
