"""Tests that every option in a program's --help is on its man page; for stdchk, in the section of its
command."""

import functools
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))
PAGES = ROOT / "docs" / "man"
COMMON = "All commands"
pytestmark = pytest.mark.skipif(not (BIN / "stdchk").exists(), reason="not built: stdchk")


def help_of(*command):
    done = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def options_of(text):
    """The options of a help text; each begins its line."""
    heads = re.findall(r"^  (-.*?)(?:  |$)", text, re.MULTILINE)
    return {option for head in heads for option in re.findall(r"--[a-z-]+", head)}


def commands():
    return re.findall(r"^  ([a-z][a-z-]*)  ", help_of("stdchk"), re.MULTILINE)


@functools.cache
def page_of(program):
    return (PAGES / f"{program}.1").read_text().replace("\\-", "-")


def section_of(page, heading):
    """The part of a page from .SS or .SH HEADING to the next heading."""
    found = re.search(rf"^\.S[SH] \"?{re.escape(heading)}\"?\n(.*?)(?=^\.S[SH]|\Z)", page, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def is_in(option, text):
    return re.search(rf"(?<![a-z-]){re.escape(option)}(?![a-z-])", text) is not None


def test_a_help_text_has_options():
    """The parser finds options and commands: otherwise the comparisons below would be empty."""
    assert {"--drain", "--timeout", "--pool"} <= options_of(help_of("stdchk", "down"))
    assert {"up", "down", "safe", "restart-test", "advise"} <= set(commands())


@pytest.mark.parametrize("program", ["stdchk-manager", "stdchk-benefactor", "stdchk-mount", "stdchk-pager"])
def test_every_option_of_a_daemon_is_on_its_page(program):
    missing = {option for option in options_of(help_of(program)) if not is_in(option, page_of(program))}
    assert not missing, f"docs/man/{program}.1 does not name {sorted(missing)}"


def test_every_option_of_each_command_is_in_its_section():
    page = page_of("stdchk")
    common = section_of(page, COMMON)
    missing = {}
    for command in commands():
        text = section_of(page, command) + common
        lacking = sorted(option for option in options_of(help_of("stdchk", command)) if not is_in(option, text))
        if lacking:
            missing[command] = lacking
    assert not missing, f"docs/man/stdchk.1 does not name {missing}"


def test_every_command_is_in_the_synopsis():
    synopsis = section_of(page_of("stdchk"), "SYNOPSIS")
    missing = [command for command in commands() if f"stdchk {command}" not in synopsis]
    assert not missing
