"""Tests how scripts/rdma-vm handles the end of its virtual machine. QEMU and the package downloads are
stand-ins."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = "6.1.0-99-amd64"
STAND_INS = {
    "dpkg-query": "echo install ok installed",
    "cpio": "cat >/dev/null",
    "apt-cache": "echo '  Depends: linux-kbuild-6.1'",
    "apt-get": "exit ${FETCH_STATUS:-0}",
    "make": "exit 2",
    # Prints the scripted output as the guest, and ends as told.
    "qemu-system-x86_64": """
        [[ $* == "-accel help" ]] && echo tcg && exit
        [[ "$*" =~ id=status,path=([^ ]+) ]]
        printf "$GUEST_SAYS" >"${BASH_REMATCH[1]}"
        [[ $QEMU_ENDS == killed ]] && kill -KILL $$
        [[ $QEMU_ENDS == late ]] && exec sleep 20
        exit "$QEMU_ENDS" """,
}


@pytest.fixture
def environment(tmp_path):
    """The environment of a script that finds the stand-ins and a cached kernel."""
    programs, kept = tmp_path / "bin", tmp_path / "cache" / "stdchk" / "rdma-vm"
    programs.mkdir()
    kept.mkdir(parents=True)
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    for name in ("modules.cpio", "vmlinuz"):
        (kept / name).touch()
    (kept / "version").write_text(VERSION + "\n")
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache"),
                         "GUEST_SAYS": "begun\\n0\\n", "QEMU_ENDS": "0"}


def rdma_vm(environment, folder, *arguments):
    return subprocess.run([ROOT / "scripts" / "rdma-vm", *arguments, "true"], capture_output=True, text=True,
                          timeout=30, env=environment, cwd=folder)


@pytest.mark.parametrize("says, ends, status, words", [
    ("begun\\n0\\n", "0", 0, ""),
    ("begun\\n7\\n", "0", 7, ""),
    ("", "1", 125, "NOT RUN: the virtual machine ended before the command"),
    ("begun\\n", "0", 1, "FAILED: the virtual machine ended under the command"),
    ("begun\\n", "killed", 1, "FAILED: the virtual machine ended under the command"),
    ("begun\\n125\\n", "0", 1, "FAILED: the command ended with 125"),
])
def test_only_a_command_that_was_not_begun_counts_as_not_run(environment, tmp_path, says, ends, status, words):
    done = rdma_vm(environment | {"GUEST_SAYS": says, "QEMU_ENDS": ends}, tmp_path)
    assert done.returncode == status
    assert words in done.stderr


def test_a_machine_that_does_not_end_in_time_is_a_failure(environment, tmp_path):
    done = rdma_vm(environment | {"GUEST_SAYS": "begun\\n", "QEMU_ENDS": "late"}, tmp_path, "--seconds", "1")
    assert done.returncode == 124
    assert "did not end within 1 s" in done.stderr


def add_source(folder):
    """Adds the files of Debian's packages of headers and sources."""
    (folder / f"usr/src/linux-headers-{VERSION}").mkdir(parents=True)
    (folder / f"usr/src/linux-headers-{VERSION}" / "Makefile").write_text("include /usr/src/other\n")
    (folder / "linux-source-6.1/drivers/infiniband/sw/siw").mkdir(parents=True)
    subprocess.run(["tar", "-cJf", "usr/src/linux-source-6.1.tar.xz", "linux-source-6.1"], cwd=folder, check=True)


def test_a_build_that_fails_is_no_download_that_fails(environment, tmp_path):
    packages = tmp_path / "packages"
    packages.mkdir()
    add_source(packages)
    extract = tmp_path / "bin" / "dpkg-deb"
    extract.write_text(f"#!/bin/bash\ncp -r {packages}/usr .\n")
    extract.chmod(0o755)
    done = rdma_vm(environment, tmp_path, "--siw")
    assert done.returncode == 1
    assert "FAILED: soft-iWARP could not be built" in done.stderr
    done = rdma_vm(environment | {"FETCH_STATUS": "100"}, tmp_path, "--siw")
    assert done.returncode == 125
    assert "NOT RUN: the headers and source" in done.stderr
