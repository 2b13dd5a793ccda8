"""Tests what `meson install` installs: the programs, and the C interface found by its pkg-config file, over a
real pool."""

import os
import re

import pytest
from processes import BIN, ROOT, run

BUILD = (BIN / "stdchk").resolve().parents[1]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]


class Installed:
    """A staging directory in place of /, as packagers use it."""

    def __init__(self, stage):
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", stage, seconds=120)
        self.stage = stage
        (self.package,) = stage.rglob("stdchk.pc")
        (self.header,) = stage.rglob("stdchk.h")
        (self.library,) = stage.rglob("libstdchk.so")
        (self.program,) = (path for path in stage.rglob("stdchk") if path.parent.name == "bin")

    def pkg_config(self, *words):
        # Imitates a cross compiler: all paths in the pkg-config file begin with the staging directory.
        environment = os.environ | {
            "PKG_CONFIG_PATH": str(self.package.parent), "PKG_CONFIG_SYSROOT_DIR": str(self.stage),
            "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1", "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}
        return run("pkg-config", *words, "stdchk", env=environment).stdout.split()

    def compiled(self, source):
        program = self.stage / source.stem
        run("cc", *STRICT, "-I", ROOT, source, *self.pkg_config("--cflags", "--libs"), "-o", program)
        return program

    def compiled_cpp(self, source):
        program = self.stage / source.stem
        run("c++", "-std=c++17", *STRICT[1:], "-Wshadow", source, *self.pkg_config("--cflags", "--libs"), "-o", program)
        return program


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="module")
def calls(installed):
    return installed.compiled(ROOT / "tests" / "integration" / "c_api_calls.c")


@pytest.fixture(scope="module")
def names(installed):
    return installed.compiled(ROOT / "tests" / "integration" / "c_api_names.c")


def run_program(pool, installed, *command):
    record = pool.record
    return run(*command, check=False, env=pool.environment | {
        "LD_LIBRARY_PATH": str(installed.library.parent), "STDCHK_MANAGER": record["manager_address"],
        "STDCHK_SECRET_FILE": record["secret_file"]})


def up_once(pool):
    if not os.path.ismount(pool.mount):
        pool.up(benefactors=2, drain=False)


@pytest.mark.parametrize("case", ["offsets", "truncate", "abort", "reserve", "sync", "errors", "threads"])
def test_a_program_against_the_installed_library_gets_what_the_header_says(module_pool, installed, calls, case):
    up_once(module_pool)
    done = run_program(module_pool, installed, calls, case)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


@pytest.mark.parametrize("case", ["names", "links", "attributes", "sets", "directories", "unsafe", "vectors", "queue", "codes"])
def test_names_sets_and_queues_are_as_the_header_says(module_pool, installed, names, case):
    up_once(module_pool)
    done = run_program(module_pool, installed, names, case)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_drained_file_is_safe(pool, installed, names, transport):
    pool.up("--transport", transport, benefactors=2)
    for case in ("safe", "vectors", "queue"):
        done = run_program(pool, installed, names, case)
        assert (done.returncode, done.stdout) == (0, "good\n"), (case, done.stderr)
    assert (pool.drain / "safe" / "a").read_bytes() == b"one"


def test_the_example_of_names_and_sets_runs(module_pool, installed):
    up_once(module_pool)
    program = installed.compiled(ROOT / "examples" / "c_sets.c")
    done = run_program(module_pool, installed, program, "c-sets")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "c-sets: the newest complete set is heat.*.T3, 4 images of 1048576 bytes\n"
    assert {f"heat.N{rank}.T3" for rank in range(4)} < {path.name for path in (module_pool.mount / "c-sets").iterdir()}


def test_the_example_in_cpp_runs(module_pool, installed):
    up_once(module_pool)
    program = installed.compiled_cpp(ROOT / "examples" / "cpp_api.cpp")
    done = run_program(module_pool, installed, program, "cpp.N0.T1")
    assert (done.returncode, done.stdout) == (0, "cpp.N0.T1: 1048576 bytes, written and read back equal\n"), done.stderr


def test_the_example_runs_as_its_first_lines_say(module_pool, installed):
    up_once(module_pool)
    program = installed.compiled(ROOT / "examples" / "c_api.c")
    done = run_program(module_pool, installed, program, "example.N0.T7", "5")
    assert (done.returncode, done.stdout) == (0, "example.N0.T7: 5 MiB written and read back equal\n")
    assert (module_pool.mount / "example.N0.T7").stat().st_size == 5 << 20
    done = run_program(module_pool, installed, program, "no-such-folder/example.N0.T7")
    assert done.returncode == 1 and done.stderr.startswith("open for writing: ")


def declared_functions(header):
    """The functions that the header declares."""
    return set(re.findall(r"^[a-z][\w *]*?\b(stdchk_\w+)\(", header.read_text(), re.MULTILINE))


def test_the_library_shows_its_interface_with_versions_and_nothing_else(installed):
    listing = run("nm", "--dynamic", "--defined-only", "--with-symbol-versions", installed.library).stdout
    names = {line.split()[-1] for line in listing.splitlines() if line.split()[-2] == "T"}
    assert names == {f"{name}@@STDCHK_0.1" for name in declared_functions(installed.header)}


def test_the_manual_page_names_each_function(installed):
    page = (ROOT / "docs" / "man" / "stdchk.3").read_text()
    assert {name for name in declared_functions(installed.header) if name not in page} == set()


def test_a_pool_comes_up_from_where_it_was_installed(pool, installed):
    pool.environment.pop("STDCHK_BIN")
    pool.environment["LD_LIBRARY_PATH"] = str(installed.library.parent)
    run(installed.program, "up", "--mount", pool.mount, "--benefactors", "1", "--memory", "64M", env=pool.environment)
    programs = {os.readlink(f"/proc/{member['pid']}/exe") for member in pool.record["members"]}
    assert {os.path.dirname(program) for program in programs} == {str(installed.program.parent)}
    (pool.mount / "file").write_bytes(b"works")
    assert (pool.mount / "file").read_bytes() == b"works"
    run(installed.program, "down", pool.mount, env=pool.environment)
    assert not os.path.ismount(pool.mount)
