"""Clones of virtual machines: `stdchk vm` with Debian's kernel in QEMU's own emulator of processors, and the calls of
stdchk_fork.h inside the guest."""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
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

    def __init__(self, folder, guest, *flags, disk=False, memory="192M", devices=(), **words):
        self.folder, self.console = folder, folder / "console-0"
        command = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=32", "-m", memory, "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-kernel", guest / "vmlinuz", "-initrd", guest / "initrd",
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check "
            + " ".join(f"{name}={value}" for name, value in words.items()),
            "-chardev", f"file,id=console,path={folder}/console-{{id}},append=on", "-serial", "chardev:console",
        ]
        for device in devices:
            command += ["-device", device]
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

    def shared_bytes(self):
        """Returns how much of its memory file the machine uses."""
        status = pathlib.Path(f"/proc/{self.list()['first']['pid']}/status").read_text()
        return int(re.search(r"RssShmem:\s+(\d+)", status)[1]) << 10

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
def pager_of(pool, folder, *words):
    ready = folder / "ready"
    pager = subprocess.Popen([
        BIN / "stdchk-pager", "--socket", folder / "pager", "--ready-file", ready, "--manager",
        pool.record["manager_address"], "--secret-file", pool.record["secret_file"], *words])
    try:
        wait_until(ready.exists, "stdchk-pager")
        yield folder / "pager"
    finally:
        pager.terminate()
        pager.wait(20)


def figures_of(folder):
    address = (folder / "metrics").read_text().strip()
    page = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
    figures = {name: int(float(value)) for name, value in re.findall(r"^stdchk_pager_(\w+) (\S+)$", page, re.MULTILINE)}
    return figures["wanted_bytes_total"] + figures["ahead_bytes_total"], figures["hole_bytes_total"]


def test_a_clone_does_not_fetch_memory_that_its_parent_had_free(pool, tmp_path, guest):
    pool.up(benefactors=3, drain=False)
    fetched, holes = {}, {}
    for name, flags in (("kept", []), ("given", ["--free-pages"])):
        folder = tmp_path / name
        folder.mkdir()
        with machine(folder, guest, *flags, memory="448M", mib=16, used=288, fresh=192) as parent:
            parent.wait_for("ready", 120)
            if flags:
                wait_until(lambda parent=parent: parent.shared_bytes() < 200 << 20, "the guest gives up its free memory", 60)
            else:
                assert parent.shared_bytes() > 288 << 20
            parent.ask("save", "first", pool.mount / name)
        with pager_of(pool, folder, "--metrics", "0", "--metrics-file", folder / "metrics") as pager:
            parent.ask("start", pool.mount / name, "second", "--id", 5, "--pager", pager, "--pool-path", f"/{name}")
            try:
                console = folder / "console-5"
                wait_until(lambda console=console: console.exists() and re.search(r"fresh 192 wrong \d+\s", console.read_text()),
                           "the clone", 120)
                assert "fresh 192 wrong 0" in console.read_text()
                fetched[name], holes[name] = figures_of(folder)
            finally:
                parent.ask("kill", "second", check=False)
    print({name: (fetched[name] >> 20, holes[name] >> 20) for name in fetched})
    assert fetched["kept"] - fetched["given"] > 80 << 20, (fetched, holes)
    assert holes["given"] - holes["kept"] > 32 << 20, (fetched, holes)


F_GET_SEALS, F_SEAL_FUTURE_WRITE = 1034, 0x10


def memory_seals(pid):
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if "memfd:stdchk-vm" in os.readlink(link):
            with open(link, "rb") as memory:
                return fcntl.fcntl(memory, F_GET_SEALS)
    return 0


def inherited_bytes(pid):
    """Returns how much of a clone's memory is its parent's memory file."""
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    ranges = re.findall(r"^(\w+)-(\w+) .*memfd:stdchk-vm", maps, re.MULTILINE)
    return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)


def test_memory_that_a_clone_gives_up_stays_in_other_machines(tmp_path, guest):
    # The user's own device, without the property: stdchk adds it.
    with machine(tmp_path, guest, devices=["virtio-balloon-pci"], mib=48, watch=1, drop=1) as parent:
        parent.wait_for("watched wrong 0")
        (name,) = parent.ask("fork", "first").stdout.split()
        pid = parent.list()[name]["pid"]
        assert memory_seals(pid) & F_SEAL_FUTURE_WRITE  # nobody can punch holes, without our library either
        wait_until(lambda: inherited_bytes(pid) < 192 - 24 << 20, "the clone gives up its memory", 60)
        assert "dropped" in (tmp_path / "console-1").read_text()
        seen = parent.console.read_text().count("watched")
        wait_until(lambda: parent.console.read_text().count("watched") > seen + 1, "the parent checks its memory", 60)
        assert set(re.findall(r"watched wrong (\d+)", parent.console.read_text())) == {"0"}


# A program in place of QEMU. It maps a memory file as QEMU does, and punches a hole into a part of it.
GIVES_UP = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
size, page = 1 << 20, 4096
file = os.memfd_create("memory")
os.write(file, b"x" * size)
room = libc.mmap(None, size, 0, 0x22, -1, 0)
memory = libc.mmap(room, size, 3, 0x12, file, 0)
fallocate = getattr(libc, os.environ["FALLOCATE"])
fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
print(fallocate(file, 3, 16 * page, 8 * page), fallocate(file, 3, size, page))
found = ctypes.string_at(memory, size)
print(found == b"x" * 16 * page + bytes(8 * page) + b"x" * (size - 24 * page), os.pread(file, size, 0) == b"x" * size)
"""


@pytest.mark.parametrize("call", ["fallocate", "fallocate64"])
def test_qemu_gives_up_memory_of_its_own_machine_only(call):
    library = (BIN / "stdchk-vm").resolve().parent / "libstdchk-vm-memory.so"
    environment = dict(os.environ, LD_PRELOAD=str(library), STDCHK_VM_BYTES=str(1 << 20), FALLOCATE=call)
    done = subprocess.run([sys.executable, "-c", GIVES_UP], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "-1", "True", "True"], done.stderr


@contextlib.contextmanager
def answering_host():
    """Answers messages at UDP port 7000 of all addresses of this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("0.0.0.0", 7000))
        own.settimeout(0.2)
        ends = threading.Event()

        def serve():
            while not ends.is_set():
                with contextlib.suppress(TimeoutError):
                    heard, place = own.recvfrom(100)
                    own.sendto(b"host " + heard, place)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()


def answer_of(address):
    """Returns what the machine answers to this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(1)
        for _ in range(30):
            with contextlib.suppress(TimeoutError):
                own.sendto(b"ping", (address, 7000))
                return own.recv(100).decode()
    return "nothing"


@pytest.mark.skipif(os.geteuid() != 0, reason="networks of machines need root")
def test_each_machine_has_an_address_in_the_network_of_its_family(tmp_path, guest):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    with machine(one, guest, "--network", "10.93.0.0/16", mib=16, clones=2, echo=1) as parent:
        wait_until(lambda: len(parent.list()) == 3, "the clones", 60)
        for number in (1, 2):
            console = one / f"console-{number}"
            wait_until(lambda console=console: console.exists() and "has" in console.read_text(), "the clone's network", 60)
        parent.wait_for("machine 0 has")
        addresses = {listed["id"]: listed["address"] for listed in parent.list().values()}
        assert len(set(addresses.values())) == 3
        for number, address in addresses.items():
            assert answer_of(address) == f"{number} ping"
            assert f"machine {number} has {address}\n" in (one / f"console-{number}").read_text()
        for number in (1, 2):  # the clone's address is no longer the parent's, which it reaches
            assert f"probe of {addresses[0]} by {number}: [0 probe]" in (one / f"console-{number}").read_text()
        # The host makes a clone. The parent is reached meanwhile, although the clone begins with its addresses.
        (name,) = parent.ask("fork", "first").stdout.split()
        assert answer_of(addresses[0]) == "0 ping"
        new = parent.list()[name]["address"]
        assert new not in addresses.values()
        assert answer_of(new) == "1 ping"
        # Machines of a second family reach the host, and no machine of the first family.
        gate = addresses[0].rsplit(".", 1)[0] + ".1"
        with answering_host(), machine(two, guest, "--network", "10.93.0.0/16", mib=16, echo=1,
                                       probe=f"{gate},{addresses[0]}") as other:
            console = other.wait_for("machine 0 has")
            assert f"probe of {gate} by 0: [host probe]" in console
            assert f"probe of {addresses[0]} by 0: []" in console
            assert answer_of(other.list()["first"]["address"]) == "0 ping"
    wait_until(lambda: "10.93." not in run("ip", "-brief", "address").stdout, "the networks go with their families")


@pytest.mark.skipif(os.geteuid() != 0, reason="networks of machines need root")
def test_clones_on_other_hosts_are_in_a_network_of_that_host(pool, tmp_path, guest):
    pool.up(benefactors=2, drain=False)
    with machine(tmp_path, guest, *far_flags(pool, tmp_path), "--network", "10.94.0.0/16", mib=16) as parent:
        parent.wait_for("ready")
        names = parent.ask("fork", "first", "-n", "2").stdout.split()
        assert len(names) == 2, (tmp_path / "far-log").read_text()
    refused = parent.ask("run", "x", "--network", "10.94.0.0", "--", "qemu-system-x86_64", check=False)
    assert refused.returncode == 2 and "is not a network" in refused.stderr


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


DOMAIN = """LC_ALL=C \\
USER=root \\
{qemu} \\
-S \\
-machine pc,usb=off,memory-backend=pc.ram \\
-accel tcg,thread=multi,tb-size=32 \\
-m size=196608k \\
-object '{{"qom-type":"memory-backend-ram","id":"pc.ram","size":201326592}}' \\
-nodefaults \\
-chardev socket,id=charmonitor,path=/nonexistent/monitor.sock,server=on,wait=off \\
-mon chardev=charmonitor,id=monitor,mode=control \\
-no-shutdown \\
-kernel {guest}/vmlinuz \\
-initrd {guest}/initrd \\
-append 'console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check mib=16 clones=2' \\
-blockdev '{{"driver":"file","filename":"{folder}/disk","node-name":"libvirt-1-storage"}}' \\
-blockdev '{{"node-name":"libvirt-1-format","driver":"raw","file":"libvirt-1-storage"}}' \\
-device '{{"driver":"virtio-blk-pci","drive":"libvirt-1-format","id":"virtio-disk0"}}' \\
-chardev 'file,id=console,path={folder}/console-{{id}},append=on' \\
-device '{{"driver":"isa-serial","chardev":"console","id":"serial0"}}' \\
-vnc 127.0.0.1:0 \\
-sandbox on,spawn=deny
"""


class DomainMachine(Machine):
    """Runs a domain of libvirt. A script stands in for virsh, and prints what virsh prints for such a domain."""

    def __init__(self, folder, guest, monkeypatch):
        self.folder, self.console = folder, folder / "console-0"
        (folder / "disk").write_bytes(bytes(1 << 20))
        (folder / "native").write_text(DOMAIN.format(qemu=shutil.which("qemu-system-x86_64"), guest=guest, folder=folder))
        script = folder / "virsh"
        script.write_text(f'#!/bin/sh\n[ "$*" = "domxml-to-native qemu-argv --domain web" ] && exec cat {folder}/native\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.ask("run", "first", "--slots", "8", "--domain", "web")


def test_a_domain_of_libvirt_is_cloned(tmp_path, guest, monkeypatch):
    parent = DomainMachine(tmp_path, guest, monkeypatch)
    try:
        console = parent.wait_for("finished")
        assert "joined 2 of 7 bad 0 own 7 disk 7" in console
        assert re.findall(r"result of 7: (\d) clone \d of 7 wrong 0 disk 7", console) == ["1", "2"]
    finally:
        parent.end()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    absent = parent.ask("run", "first", "--domain", "web", check=False)
    assert absent.returncode == 2 and "virsh of libvirt" in absent.stderr


def test_a_command_line_that_cannot_be_forked_is_refused(tmp_path):
    refused = run(BIN / "stdchk", "vm", "run", "--folder", tmp_path, "x", "--", "qemu-system-x86_64", "-hda", "d", check=False)
    assert refused.returncode == 2 and "only -drive file=... is supported" in refused.stderr
    if shutil.which("qemu-system-x86_64"):
        wrong = run(BIN / "stdchk", "vm", "run", "--folder", tmp_path, "x", "--", "qemu-system-x86_64", "-nonsense", check=False)
        assert wrong.returncode == 2 and "nonsense" in wrong.stderr
