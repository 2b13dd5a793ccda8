"""Tests stdchk-pager with programs that map images: content, shared memory, and faults that the programs survive."""

import contextlib
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import urllib.request

import pytest
from fork_cast_test import Cast
from networks import Switch
from processes import (
    BIN,
    CALL_SECONDS,
    PATIENCE,
    ROOT,
    change_memory,
    children_of,
    is_running,
    programs_for_all,
    run,
    wait_until,
)

MIB = 1 << 20
BUILD = (BIN / "stdchk").resolve().parents[1]
LIBRARY = BUILD / "fork" / "pager" / "libstdchk-map.so"


def content(seed, size):
    block = hashlib.sha256(str(seed).encode()).digest()
    return b"".join(hashlib.sha256(block + i.to_bytes(8, "big")).digest() * 128 for i in range(size // 4096))


def fnv(data):
    value = 1469598103934665603
    for byte in data:
        value = (value ^ byte) * 1099511628211 % (1 << 64)
    return value


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("map") / "map_image"
    run("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-I", ROOT, ROOT / "tests" / "integration" / "map_image.c", LIBRARY,
        f"-Wl,-rpath,{LIBRARY.parent}", "-o", out)
    return out


class Clone:
    """A program that maps an image. The mapping may fail."""

    def __init__(self, program, socket, image, *options, prefix=(), environment=None, folder=None):
        self.process = subprocess.Popen(
            [*prefix, program, image, *map(str, options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            cwd=folder, env=(environment or os.environ) | {"STDCHK_PAGER": str(socket)})
        self.said = self.process.stdout.readline().strip()

    def ask(self, *words):
        self.begin(*words)
        return self.answer()

    def begin(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")

    def answer(self):
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        status = self.process.wait(CALL_SECONDS)
        self.process.stdout.close()
        return status


class Pager:
    """A page server, and the programs that use it."""

    def __init__(self, folder, program):
        self.folder, self.program = pathlib.Path(folder), program
        self.socket = self.folder / "pager.socket"
        self.log = self.folder / "pager.log"
        self.clones = []

    def start(self, *arguments, pool=None, prefix=()):
        ready = self.folder / "pager.ready"
        words = ["--socket", self.socket, "--ready-file", ready, *arguments]
        if pool:
            words += ["--manager", pool.record["manager_address"], "--secret-file", pool.record["secret_file"]]
        with open(self.log, "ab") as log:
            self.holder = subprocess.Popen([*prefix, BIN / "stdchk-pager", *map(str, words)], stdout=log, stderr=log)
        wait_until(lambda: ready.exists() or self.holder.poll() is not None, "stdchk-pager")
        assert self.holder.poll() is None, self.log.read_text()
        return self

    @property
    def server(self):
        (pid,) = children_of(self.holder.pid)
        return pid

    def map(self, image, *options, **more):
        clone = Clone(self.program, self.socket, image, *options, **more)
        self.clones.append(clone)
        return clone

    def map_file(self, path, *options, **more):
        return self.map("label", "file", path, *options, **more)

    def end(self):
        for clone in self.clones:
            if clone.process.poll() is None:
                clone.process.kill()
                clone.process.wait(10)
        print(self.log.read_text())
        if self.holder.poll() is None:
            self.holder.terminate()
            assert self.holder.wait(10 * PATIENCE) == 0
        assert not self.socket.exists()


@pytest.fixture
def pager(tmp_path, program):
    one = Pager(tmp_path, program)
    yield one
    one.end()


@pytest.fixture
def image(tmp_path):
    """A file of 8 MiB, and its content."""
    path = tmp_path / "image"
    data = content(1, 8 * MIB)
    path.write_bytes(data)
    return path, data


def figures(text):
    return {name: float(value) for name, value in re.findall(r"^(stdchk_pager_\w+) (\S+)$", text, re.MULTILINE)}


def test_a_program_reads_an_image_of_the_pool_page_by_page(pool, pager):
    pool.up(benefactors=2, drain=False)
    data = content(7, 12 * MIB) + b"the end"
    (pool.mount / "folder").mkdir()
    (pool.mount / "folder" / "app.N0.T1").write_bytes(data)
    pager.start(pool=pool)
    clone = pager.map("/folder/app.N0.T1")
    assert clone.said == f"mapped {len(data)}"
    for offset in (5 * MIB, 0, len(data) - 1, 3 * MIB + 4095):
        assert clone.ask("read", offset) == str(data[offset])
    assert clone.ask("sum") == str(fnv(data))
    part = pager.map("folder/app.N0.T1", "offset", 4 * MIB, "length", 1000)
    assert part.said == "mapped 1000" and part.ask("sum") == str(fnv(data[4 * MIB:4 * MIB + 1000]))
    assert pager.map("folder/none").said.startswith("failed: ")
    assert "not a path" in pager.map("folder/../x").said or "argument" in pager.map("folder/../x").said
    assert pager.map("folder").said.startswith("failed: ")


def test_clones_share_pages_and_keep_what_they_write_to_themselves(pager, image):
    path, data = image
    pager.start("--metrics", "0", "--metrics-file", pager.folder / "metrics")
    first, second = pager.map_file(path), pager.map_file(path)
    assert first.ask("fetch", 0, len(data)) == "fetched"
    assert first.ask("sum") == second.ask("sum") == str(fnv(data))
    assert first.ask("write", 100, (data[100] + 1) % 256) == "written"
    assert second.ask("read", 100) == str(data[100])
    assert first.ask("read", 100) == str((data[100] + 1) % 256)
    assert first.end() == 0
    assert second.ask("read", 100) == str(data[100])
    address = (pager.folder / "metrics").read_text().strip()
    counts = figures(urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode())
    assert counts["stdchk_pager_mappings"] == 1
    assert counts["stdchk_pager_wanted_bytes_total"] + counts["stdchk_pager_ahead_bytes_total"] == len(data)
    # Both clones have touched every page. Each has private copies only of pages that it wrote, and of its program.
    own, pss = map(int, second.ask("rss").split())
    assert pss >= len(data) // 1024 and own < pss


def test_a_killed_server_is_started_again_and_its_clones_go_on(pager, image):
    path, data = image
    pager.start()
    clone = pager.map_file(path)
    assert clone.ask("read", 0) == str(data[0])
    for _ in range(2):
        killed = pager.server
        os.kill(killed, signal.SIGSTOP)  # the fault comes to a server that will never answer
        offset = 3 * MIB + 4096 * killed % MIB
        clone.begin("read", offset)
        os.kill(killed, signal.SIGKILL)
        assert clone.answer() == str(data[offset])
        wait_until(lambda: not is_running(killed) and children_of(pager.holder.pid), "another server")
    assert clone.ask("fetch", 0, len(data)) == "fetched"
    assert clone.ask("sum") == str(fnv(data))
    assert "another one takes its place" in pager.log.read_text()
    another = pager.map_file(path)
    assert another.ask("sum") == str(fnv(data))


def test_a_server_that_ends_denies_what_it_has_not_fetched(pager, image):
    path, data = image
    pager.start("--prefetch", "16K")
    clone = pager.map_file(path)
    assert clone.ask("read", 0) == str(data[0])
    pager.holder.terminate()
    assert pager.holder.wait(10 * PATIENCE) == 0
    assert clone.ask("read", 1) == str(data[1])
    assert clone.ask("read", 4 * MIB) == "SIGBUS"


def test_memory_stays_within_its_bound_and_what_was_given_up_comes_again(pager, tmp_path):
    path = tmp_path / "image"
    data = content(2, 48 * MIB)
    path.write_bytes(data)
    pager.start("--memory", "16M", "--metrics", "0", "--metrics-file", pager.folder / "metrics")
    clone = pager.map_file(path)
    for offset in [*range(0, len(data), 65536), *range(0, len(data), 8 * MIB)]:
        assert clone.ask("read", offset) == str(data[offset])
    assert clone.ask("write", 0, 77) == "written"
    for offset in range(4096, len(data), 65536):
        assert clone.ask("read", offset) == str(data[offset])
    assert clone.ask("read", 0) == "77"  # its own page was not given up
    address = (pager.folder / "metrics").read_text().strip()
    counts = figures(urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode())
    assert counts["stdchk_pager_bytes"] <= 20 * MIB
    assert counts["stdchk_pager_evicted_bytes_total"] >= 48 * MIB


def test_a_lost_benefactor_leads_to_another_copy_and_a_lost_pool_to_sigbus_of_its_clones_only(pool, pager, image):
    pool.up("--copies", "2", benefactors=2, drain=False)
    data = content(3, 8 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(data)
    wait_until(lambda: pool.status()["pool"]["debt_chunks"] == 0, "the second copies")
    pager.start(pool=pool)
    clone = pager.map("app.N0.T1")
    assert clone.ask("read", 0) == str(data[0])
    pool.kill("benefactor", 0)
    for offset in range(0, 4 * MIB, MIB // 2):
        assert clone.ask("read", offset) == str(data[offset])
    pool.kill("benefactor", 1)
    other = pager.map_file(image[0])
    clone.begin("read", 7 * MIB)
    assert other.ask("sum") == str(fnv(image[1]))  # while the other one waits for a pool that is gone
    assert clone.answer() == "SIGBUS"
    assert clone.ask("read", 0) == str(data[0])
    assert re.search(rf"Image app.N0.T1, page at {7 * MIB}: .* Process {clone.process.pid} gets SIGBUS", pager.log.read_text())


def test_a_page_that_has_become_wrong_is_not_given_to_a_clone(pool, pager, tmp_path):
    disk = pool.folder / "arenas"
    disk.mkdir()
    pool.up("--disk", disk, benefactors=1, memory="64M", drain=False)
    data = content(4, 4 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(data)
    change_memory(pool.pids("benefactor")[0], "arenas", data[2 * MIB:][:64])
    pager.start(pool=pool)
    clone = pager.map("app.N0.T1")
    assert clone.ask("read", 2 * MIB) == "SIGBUS"
    assert clone.ask("read", 0) == str(data[0])
    assert "do not match their checksum" in pager.log.read_text() or "Chunks of this image" in pager.log.read_text()


def test_the_order_of_touches_is_kept_beside_the_image_and_fetched_ahead_on_the_next_host(pool, program, tmp_path):
    pool.up(benefactors=1, drain=False)
    data = content(5, 16 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(data)
    order = [offset * MIB for offset in (9, 2, 14, 5, 11)]
    counts = []
    for host in ("a", "b"):
        (tmp_path / host).mkdir()
        pager = Pager(tmp_path / host, program).start(
            "--prefetch", "16K", "--metrics", "0", "--metrics-file", tmp_path / host / "metrics", pool=pool)
        clone = pager.map("app.N0.T1")
        address = (tmp_path / host / "metrics").read_text().strip()

        def look(address=address):
            return figures(urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode())

        assert clone.ask("read", order[0]) == str(data[order[0]])
        if host == "b":
            wait_until(lambda look=look: look()["stdchk_pager_ahead_bytes_total"] >= 4 * 16384, "the others' order")
        for offset in order[1:]:
            assert clone.ask("read", offset) == str(data[offset])
        counts.append(look()["stdchk_pager_faults_total"])
        assert clone.end() == 0
        if host == "a":
            wait_until(lambda: "user.stdchk.touched" in os.listxattr(pool.mount / "app.N0.T1"), "the recorded order")
        pager.end()
    assert counts == [5, 1]


def test_hosts_that_map_a_senders_image_get_its_pages_by_multicast(program, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may make networks")
    size = 6 * MIB + 77
    with contextlib.ExitStack() as stack:
        network = Switch(3)
        stack.callback(network.end)
        (tmp_path / "cast").mkdir()
        cast = Cast(network, tmp_path / "cast", size)
        stack.callback(lambda: (cast.sender.kill(), cast.sender.communicate()))
        clones = []
        for number in (1, 2):
            folder = tmp_path / f"host{number}"
            folder.mkdir()
            pager = Pager(folder, program)
            pager.start("--cast-secret-file", cast.secret, "--cast-own", network.address(number),
                        prefix=network.hosts[number].prefix)
            stack.callback(pager.end)
            clones.append(pager.map(f"cast://{cast.address}/{cast.root}"))
            assert clones[-1].said == f"mapped {size}"
        data = cast.image.read_bytes()
        assert clones[0].ask("read", size - 1) == str(data[-1])
        before = network.sent_bytes(0)
        for clone in clones:
            clone.begin("sum")
        assert {clone.answer() for clone in clones} == {str(fnv(data))}
        # By unicast the sender's link carries the image twice.
        assert network.sent_bytes(0) - before < 1.7 * size
        wrong = pager.map(f"cast://{cast.address}/{'ab' * 32}")
        assert wrong.said.startswith("failed: ")
        assert pager.map("cast://10.9.0.1").said.startswith("failed: ")


def test_an_image_of_a_sender_needs_the_senders_secret(pager):
    pager.start()
    assert pager.map(f"cast://127.0.0.1:1/{'ab' * 32}").said.startswith("failed: ")


def test_another_user_is_refused(pager, image, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    pager.start()
    os.chmod(tmp_path, 0o755)
    # Each start of pytest closes the folder of all its temporary folders to other users. So the other user begins in
    # the folder of the socket.
    programs = programs_for_all(tmp_path / "programs")
    program = tmp_path / "map_image"
    program.write_bytes(pager.program.read_bytes())
    program.chmod(0o755)
    library = programs / "libstdchk-map.so.0"
    library.write_bytes(LIBRARY.read_bytes())
    stranger = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env",
                f"LD_LIBRARY_PATH={programs.name}"]

    def said():
        return Clone(f"./{program.name}", pager.socket.name, "label", "file", image[0].name, prefix=stranger,
                     folder=tmp_path).said

    assert "Permission denied" in said()
    pager.socket.chmod(0o777)  # even where the socket's mode lets them come
    assert said().startswith("failed: ")
    assert "of user 65534 was refused" in pager.log.read_text()
    run("setpriv", "--reuid", "65534", "true")


def test_server_and_holder_are_confined(pager, image):
    pager.start()
    for pid in (pager.holder.pid, pager.server):
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            said = dict(line.rstrip("\n").split(":\t", 1) for line in status)
        assert said["NoNewPrivs"] == "1"
        assert said["Seccomp"] in "02"  # 0: a program with a sanitizer
        assert not int(said["CapEff"], 16) >> 21 & 1  # CAP_SYS_ADMIN
    assert pager.map_file(image[0]).ask("sum") == str(fnv(image[1]))


def test_broken_messages_end_their_connection_only(pager, image):
    import socket
    pager.start()
    clone = pager.map_file(image[0])
    for message in (b"", b"x", b"\0" * 4120, b"\xff" * 4120, b"\1" * 100000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.settimeout(10)
            one.connect(str(pager.socket))
            with contextlib.suppress(OSError):
                one.send(message)
                one.recv(4096)
    assert clone.ask("sum") == str(fnv(image[1]))


def test_moved_and_forked_mappings_never_read_zeros(pager, image):
    path, data = image
    pager.start()
    plain = pager.map_file(path)
    assert plain.ask("move") == "moved"
    assert plain.ask("read", 6 * MIB) == str(data[6 * MIB])
    assert plain.ask("fork", 5 * MIB) == f"signal {signal.SIGSEGV}"
    if os.geteuid() != 0:
        pytest.skip("following fork(2) needs CAP_SYS_PTRACE")
    follower = pager.map_file(path, "follow")
    assert follower.ask("fork", 4 * MIB + 1) == str(data[4 * MIB + 1])
    assert follower.ask("into", 2 * MIB, 5000) == "read"
    assert follower.ask("read", 2 * MIB + 4096) == "0"
    assert follower.ask("read", 2 * MIB + 5000) == str(data[2 * MIB + 5000])


def test_threads_that_read_a_mapping_while_another_thread_moves_it_get_its_bytes(pager, image):
    """The kernel reports the threads' page faults before it reports the move of the mapping."""
    path, data = image
    pager.start("--prefetch", "16K")
    clone = pager.map_file(path)
    assert clone.ask("chase", 200) == "0 wrong"
    assert clone.ask("sum") == str(fnv(data))


def test_a_second_server_at_the_same_socket_is_refused(pager, image):
    pager.start()
    done = run(BIN / "stdchk-pager", "--socket", pager.socket, check=False)
    assert done.returncode == 1 and "another stdchk-pager serves" in done.stderr
    assert pager.map_file(image[0]).ask("read", 0) == str(image[1][0])
