"""Clones of virtual machines: `stdchk vm` with Debian's kernel in QEMU's own emulator of processors, and the calls of
stdchk_fork.h inside the guest."""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest
from processes import BIN, PATIENCE, ROOT, run, wait_until

PROGRAM = (BIN / "stdchk-forkd").resolve().parents[1] / "tests" / "integration" / "fork-guest"


@pytest.fixture(scope="module")
def guest():
    if not PROGRAM.exists():
        pytest.skip("the guest's program is not built")
    made = subprocess.run(
        [ROOT / "scripts" / "fork-guest", PROGRAM], capture_output=True, text=True, timeout=300 * PATIENCE
    )
    if made.returncode == 125:
        pytest.skip(made.stderr.strip().splitlines()[-1])
    assert made.returncode == 0, made.stderr
    return pathlib.Path(made.stdout.strip())


class Machine:
    """Runs the parent machine of later clones. Its files are in `folder`."""

    def __init__(self, folder, guest, *flags, disk=False, **words):
        self.folder, self.console = folder, folder / "console-0"
        command = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=32", "-m", "192M", "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-kernel", guest / "vmlinuz", "-initrd", guest / "initrd",
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check "
            + " ".join(f"{name}={value}" for name, value in words.items()),
            "-chardev", f"file,id=console,path={folder}/console-{{id}},append=on", "-serial", "chardev:console",
        ]
        if disk:
            with open(folder / "disk", "wb") as file:
                file.truncate(1 << 20)
            command += ["-drive", f"file={folder}/disk,format=raw,if=virtio"]
        self.ask("run", "first", "--slots", "8", *flags, "--", *command)

    def ask(self, action, *words, check=True):
        return run(BIN / "stdchk", "vm", action, "--folder", self.folder / "machines", *words, check=check)

    def list(self):
        return {machine["name"]: machine for machine in json.loads(self.ask("list", "--json").stdout)}

    def log(self):
        return (self.folder / "machines" / "first" / "log").read_text()

    def wait_for(self, text, seconds=60):
        def has():
            return self.console.exists() and text in self.console.read_text()
        wait_until(has, f"the console says {text!r}", seconds)
        return self.console.read_text()

    def is_gone(self):
        # `{folder}` stands in each QEMU's command line.
        return not subprocess.run(["pgrep", "-f", f"qemu.*{self.folder}/console"], capture_output=True).stdout

    def end(self):
        self.ask("kill", "first", check=False)
        wait_until(self.is_gone, "all machines of the family end")


@contextlib.contextmanager
def machine(folder, guest, *flags, **words):
    made = Machine(folder, guest, *flags, **words)
    try:
        yield made
    finally:
        made.end()


def test_a_guest_clones_its_machine_and_joins(tmp_path, guest):
    with machine(tmp_path, guest, disk=True, mib=32, clones=3, rounds=2) as parent:
        console = parent.wait_for("finished")
        results = re.findall(r"result of 7: (\d) clone (\d) of 7 wrong (\d+) disk (\d+)", console)
        # Each clone has the parent's memory and disk. The second round shows that a machine can be cloned again.
        assert results == [(str(i), str(i), "0", "7") for i in (1, 2, 3)] * 2
        # A clone's writes to memory and disk stay private.
        assert len(re.findall("joined 3 of 7 bad 0 own 7 disk 7", console)) == 2
        assert list(parent.list()) == ["first"]
        away = [int(ms) for ms in re.findall(r"away for (\d+) ms", parent.log())]
        assert len(away) == 2 and max(away) < 1000 * PATIENCE, away


def test_clones_clone_themselves(tmp_path, guest):
    with machine(tmp_path, guest, mib=16, clones=2, nested=2) as parent:
        console = parent.wait_for("finished")
        assert len(re.findall(r"result of 7: \d clone \d of 7 wrong 0", console)) == 2
        for me in (1, 2):
            inner = (tmp_path / f"console-{me}").read_text()
            assert len(re.findall(rf"result of 70{me}: \d clone \d of 70{me} wrong 0", inner)) == 2, inner


def test_the_host_clones_lists_and_ends_machines(tmp_path, guest):
    with machine(tmp_path, guest, mib=16) as parent:
        parent.wait_for("ready")
        names = parent.ask("fork", "first", "-n", "2").stdout.split()
        assert names == ["first.1.1", "first.1.2"]
        figures = json.loads(parent.ask("fork", "first.1.1", "-n", "1", "--json").stdout)
        assert figures["clones"] == ["first.1.1.2.1"] and figures["descriptor_bytes"] < 4 << 20
        assert set(parent.list()) == {"first", *names, "first.1.1.2.1"}
        parent.ask("kill", "first.1.1")  # its clone ends, too
        assert set(parent.list()) == {"first", "first.1.2"}
        refused = parent.ask("fork", "first", "-n", "50", check=False)
        assert refused.returncode == 0 and len(refused.stdout.split()) == 6  # of 8 slots
        full = parent.ask("fork", "first", check=False)
        assert full.returncode == 2 and "no slot or no memory is free" in full.stderr
        assert parent.ask("fork", "nobody", check=False).returncode == 2


def start(parent, image, name, number, *words):
    parent.ask("start", image, name, "--id", number, *words)
    console = parent.folder / f"console-{number}"
    wait_until(lambda: console.exists() and "watched" in console.read_text(), f"{name} checks its memory", 60)
    found = re.findall(r"watched wrong (\d+)", console.read_text())
    assert set(found) == {"0"}, found


def test_an_image_in_a_pool_is_started_again_page_by_page(pool, tmp_path, guest):
    pool.up(benefactors=2, drain=False)
    image = pool.mount / "machine"
    with machine(tmp_path, guest, disk=True, mib=48, watch=1) as parent:
        parent.wait_for("watched wrong 0")
        parent.ask("save", "first", image)
        seen = len(parent.console.read_text())
        # The machine goes on. Its later changes are not in the image.
        wait_until(lambda: "watched wrong 0" in parent.console.read_text()[seen:], "the machine goes on")
    assert sorted(entry.name for entry in image.iterdir()) == ["descriptor", "disk-0.qcow2", "machine.json", "memory"]
    ready = tmp_path / "ready"
    pager = subprocess.Popen([
        BIN / "stdchk-pager", "--socket", tmp_path / "pager", "--ready-file", ready, "--metrics", "0", "--metrics-file",
        tmp_path / "metrics", "--manager", pool.record["manager_address"], "--secret-file", pool.record["secret_file"]])
    try:
        wait_until(ready.exists, "stdchk-pager")
        lazily = ["--pager", tmp_path / "pager", "--pool-path", "/machine"]
        start(parent, image, "second", 5, *lazily)
        address = (tmp_path / "metrics").read_text().strip()
        page = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
        fetched = sum(float(n) for n in re.findall(r"^stdchk_pager_(?:wanted|ahead)_bytes_total (\S+)$", page, re.MULTILINE))
        assert 48 << 20 < fetched < 192 << 20, fetched
        start(parent, image, "third", 6)
        assert set(parent.list()) == {"second", "third"}
    finally:
        for name in ("second", "third"):
            parent.ask("kill", name, check=False)
        wait_until(parent.is_gone, "all machines end")
        pager.terminate()
        pager.wait(20)


@contextlib.contextmanager
def pager_of(pool, folder):
    ready = folder / "ready"
    pager = subprocess.Popen([
        BIN / "stdchk-pager", "--socket", folder / "pager", "--ready-file", ready, "--manager",
        pool.record["manager_address"], "--secret-file", pool.record["secret_file"]])
    try:
        wait_until(ready.exists, "stdchk-pager")
        yield folder / "pager"
    finally:
        pager.terminate()
        pager.wait(20)


def far_flags(pool, folder):
    """Returns flags for two hosts: this host takes one clone. Further clones go to a second host, a network namespace."""
    scripts = {
        "rsh": 'test "$1" = far && shift && exec unshare --net "$@"',
        "vm": f'action=$1; shift; exec {BIN}/stdchk-vm "$action" --folder {folder}/far "$@" 2>>{folder}/far-log',
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "hosts").write_text("far slots=2 memory=4G\n")
    images = pool.mount / "machines"
    images.mkdir()
    return ["--slots", "1", "--hosts", folder / "hosts", "--images", images, "--rsh", folder / "rsh", "--remote-program",
            folder / "vm"]


def test_clones_of_a_machine_go_to_other_hosts(pool, tmp_path, guest):
    pool.up(benefactors=2, drain=False)
    flags = far_flags(pool, tmp_path)
    with pager_of(pool, tmp_path) as pager:
        flags += ["--clone-pager", pager, "--images-pool-path", "/machines"]
        with machine(tmp_path, guest, *flags, disk=True, mib=32, clones=3, rounds=1) as parent:
            console = parent.wait_for("finished", 90)
            results = re.findall(r"result of 7: (\d) clone (\d) of 7 wrong (\d+) disk (\d+)", console)
            assert results == [(str(i), str(i), "0", "7") for i in (1, 2, 3)], (tmp_path / "far-log").read_text()
            assert "joined 3 of 7 bad 0 own 7 disk 7" in console
            wait_until(lambda: not list((pool.mount / "machines").iterdir()), "the image goes with its ticket")
            # The host asks for a fork, and ends a clone that runs elsewhere.
            names = parent.ask("fork", "first", "-n", "3").stdout.split()
            assert names == ["first.2.1", "first.2.2", "first.2.3"]
            listed = parent.list()
            assert [listed[name].get("host") for name in names] == [None, "far", "far"]
            parent.ask("kill", "first.2.3")
            assert set(parent.list()) == {"first", "first.2.1", "first.2.2"}
        assert not list((pool.mount / "machines").iterdir())


def test_a_folder_that_is_no_image_is_refused(tmp_path):
    refused = run(BIN / "stdchk", "vm", "start", "--folder", tmp_path, tmp_path, "x", check=False)
    assert refused.returncode == 2 and "no image of a machine" in refused.stderr
    (tmp_path / "machine.json").write_text('{"format": 1, "words": 3}')
    refused = run(BIN / "stdchk", "vm", "start", "--folder", tmp_path, tmp_path, "x", check=False)
    assert refused.returncode == 2 and "damaged" in refused.stderr


def test_nothing_stays_when_the_machines_process_is_killed(tmp_path, guest):
    with machine(tmp_path, guest, mib=16) as parent:
        parent.wait_for("ready")
        parent.ask("fork", "first", "-n", "2")
        keeper = int(pathlib.Path(f"/proc/{parent.list()['first']['pid']}/stat").read_text().rsplit(")", 1)[1].split()[1])
        run("kill", "-KILL", keeper)
        wait_until(parent.is_gone, "all machines end with their process")


def test_a_command_line_that_cannot_be_forked_is_refused(tmp_path):
    refused = run(BIN / "stdchk", "vm", "run", "--folder", tmp_path, "x", "--", "qemu-system-x86_64", "-hda", "d", check=False)
    assert refused.returncode == 2 and "only -drive file=... is supported" in refused.stderr
    if shutil.which("qemu-system-x86_64"):
        wrong = run(BIN / "stdchk", "vm", "run", "--folder", tmp_path, "x", "--", "qemu-system-x86_64", "-nonsense", check=False)
        assert wrong.returncode == 2 and "nonsense" in wrong.stderr
