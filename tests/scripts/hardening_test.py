"""Tests that installed programs and libraries are hardened.

They load at random addresses, and no stack is executable. Their tables of functions are read-only after the start. Their
objects have checks against buffer overflows.
"""

import functools
import json
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
# FORTIFY would change the behaviour of these libraries. The first interposes functions of the C library by their plain
# names. Clones of the second change stacks by longjmp(3).
NOT_FORTIFIED = ("preload/", "fork/libstdchk_fork.so")
# No user gets these; they lie beside the installed programs in the build folder.
NOT_INSTALLED = ("tests/", "bench/", "examples/")
DAEMONS = ("stdchk-manager", "stdchk-benefactor", "stdchk-mount", "stdchk-container", "stdchk-forkd", "stdchk-pager")
pytestmark = pytest.mark.skipif(not (BUILD / "build.ninja").exists(), reason="not built: build/release")


@functools.cache
def installed():
    """The ELF files among what `meson install` installs."""
    listed = json.loads(subprocess.run(["meson", "introspect", str(BUILD), "--installed"], check=True, capture_output=True,
                                       text=True).stdout)
    files = [pathlib.Path(path) for path in listed]
    found = [path for path in files if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
    assert {"stdchk", "stdchk-box-init", *DAEMONS} <= {path.name for path in found}
    assert any(path.suffix == ".so" for path in found)
    return found


def read(path, *options):
    return subprocess.run(["readelf", "-W", *options, path], check=True, capture_output=True, text=True).stdout


def weaknesses(path):
    """Returns the weaknesses of an ELF file as sentences."""
    text = read(path, "-h", "-l", "-d")
    stack = re.search(r"GNU_STACK( +0x\w+){5} +(\w+)", text)
    return [sentence for sentence, bad in (
        ("loads at a fixed address", not re.search(r"Type: +DYN", text)),
        ("has no read-only part after relocation", "GNU_RELRO" not in text),
        ("binds functions when they are called", not re.search(r"Flags:.*\bNOW\b", text)),
        ("has an executable stack", stack is None or "E" in stack.group(2)),
    ) if bad]


def test_a_weak_program_is_found(tmp_path):
    """Else the next test could not fail."""
    source = tmp_path / "weak.c"
    source.write_text("int main(void) { return 0; }\n", encoding="ascii")
    weak = tmp_path / "weak"
    subprocess.run(["cc", "-no-pie", "-fno-pie", "-Wl,-z,norelro,-z,lazy,-z,execstack", source, "-o", weak], check=True)
    assert len(weaknesses(weak)) == 4


def test_each_installed_program_and_library_is_linked_with_the_protections():
    found = {str(path.relative_to(BUILD)): weaknesses(path) for path in installed()}
    assert not {path: text for path, text in found.items() if text}


def test_daemons_call_the_checks():
    for path in installed():
        if path.name in DAEMONS:
            symbols = read(path, "--dyn-syms")
            assert "__stack_chk_fail@" in symbols, path.name
            assert re.search(r"__(mem|str|f?d?_?read|recv|v?s?n?f?printf)\w*_chk@", symbols), path.name


def test_each_object_is_compiled_with_the_checks():
    """Symbols do not show the flags of an object without arrays and copies."""
    commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    kept = [each for each in commands if not each["output"].startswith(NOT_INSTALLED)]
    assert any(each["file"].endswith(".c") for each in kept) or not list((BUILD / "tools").glob("stdchk_spank.so"))
    for each in kept:
        words = each["command"].split()
        assert "-fstack-protector-strong" in words, each["output"]
        assert "-fPIE" in words or "-fPIC" in words, each["output"]
        last = [word for word in words if word.endswith("FORTIFY_SOURCE") or "FORTIFY_SOURCE=" in word][-1:]
        assert last == ["-D_FORTIFY_SOURCE=3"] or each["output"].startswith(NOT_FORTIFIED), each["output"]
