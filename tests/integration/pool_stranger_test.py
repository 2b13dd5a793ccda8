"""Tests strangers at the ports of a pool: their bytes must not end, fill or block a daemon."""

import os
import pathlib
import resource
import socket
import struct
import threading
import time

import pytest
from conftest import restart_manager
from processes import is_running, wait_until

MIB = 1 << 20

# libfabric's tcp provider reads these bytes as a connection request, an unexpected acknowledgement, and a tagged
# message. It ended every process that listened by that provider before any proof.
REQUEST = struct.pack("<BBHIQQQ", 3, 0, 0, 0, 0, 0, 0)
ACKNOWLEDGEMENT = struct.pack("<BBHBBBBQ", 3, 0, 0, 2, 0, 16, 0, 0x1000000000000000)
TAGGED = struct.pack("<BBHBBBBQQ", 3, 1, 0x80, 0, 0, 24, 0, 0x1800000000000000, 7)
# A TLS record of each type, whole and cut, with a body of random bytes and with one that is too long.
RECORDS = [struct.pack(">BHH", kind, 0x0303, length) + os.urandom(min(length, 4096))
           for kind in (20, 21, 22, 23, 24, 255) for length in (0, 1, 2, 200, 16384, 65535)]
ALERT = struct.pack(">BHHBB", 21, 0x0303, 2, 2, 40)
WORDS = [REQUEST + ACKNOWLEDGEMENT, REQUEST + TAGGED, REQUEST, ALERT, b"GET / HTTP/1.1\r\n\r\n", bytes(65536),
         os.urandom(65536), b"\xff" * 48, *RECORDS]


def port_of(address):
    host, _, port = address.rpartition(":")
    return host.rpartition(":")[2].strip("[]") or host, int(port)


def listening_ports(pid):
    """The TCP ports that a process listens on, from proc(5)."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except OSError:
            continue
    found = []
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            found.append(int(fields[1].rpartition(":")[2], 16))
    return found


def takes(listener, host, port):
    """Listens at the address. Returns False while a thread of the previous process still uses it."""
    try:
        listener.bind((host, port))
    except OSError:
        return False
    listener.listen(64)
    return True


def daemons(pool):
    return [member["pid"] for member in pool.record["members"] if member["role"] != "mount"]


def resident_bytes(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def say(port, words, then=0.0):
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as stranger:
            stranger.settimeout(0.2)
            stranger.sendall(words)
            if then:
                time.sleep(then)
            try:
                stranger.recv(4096)
            except OSError:
                pass
    except OSError:
        pass  # refused, which is one good answer


def assert_all_work(pool, content):
    assert all(is_running(pid) for pid in daemons(pool)), "a daemon has ended"
    assert (pool.mount / "before").read_bytes() == content
    (pool.mount / f"after{time.monotonic_ns()}").write_bytes(content)


def test_what_a_stranger_says_ends_no_daemon(pool):
    pool.up("--transport", "auto", benefactors=2, drain=False)
    content = os.urandom(3 * MIB)
    (pool.mount / "before").write_bytes(content)
    targets = [port for pid in daemons(pool) for port in listening_ports(pid)]
    assert targets
    for port in targets:
        for words in WORDS:
            say(port, words)
    assert_all_work(pool, content)


def test_many_strangers_take_little_memory_and_keep_nobody_out(pool):
    pool.up(benefactors=1, drain=False)
    content = os.urandom(3 * MIB)
    (pool.mount / "before").write_bytes(content)
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    pids = daemons(pool)
    before = {pid: resident_bytes(pid) for pid in pids}
    held = []
    for port in (port for pid in pids for port in listening_ports(pid)):
        for _ in range(1500):
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", port))
            held.append(stranger)
    for stranger in held:
        try:
            stranger.send(b"\x16\x03\x01")
        except OSError:
            pass
    assert_all_work(pool, content)
    second = pool.mount_by_hand("second")  # new members get in beside them
    assert (second / "before").read_bytes() == content
    for pid in pids:
        assert resident_bytes(pid) - before[pid] < 128 * MIB
    for stranger in held:
        stranger.close()


def test_a_stranger_on_another_host_reaches_the_ports_and_nothing_behind_them(neighbour, pool):
    pool.up("--transport", "tcp", "--listen", neighbour.near, benefactors=2, drain=False)
    content = os.urandom(3 * MIB)
    (pool.mount / "before").write_bytes(content)
    targets = [port for pid in daemons(pool) for port in listening_ports(pid)]
    script = f"""
import socket, sys
for port in {targets}:
    for words in {WORDS!r}:
        try:
            with socket.create_connection(({neighbour.near!r}, port), 5) as stranger:
                stranger.settimeout(0.2)
                stranger.sendall(words)
                heard = stranger.recv(65536)
                # An alert of TLS (RFC 8446, section 6) is all that a stranger is told.
                assert not heard or heard[0] == 21, heard
        except OSError:
            pass
"""
    neighbour.run("python3", "-", input=script)
    assert_all_work(pool, content)


@pytest.mark.parametrize("words", [REQUEST + ACKNOWLEDGEMENT, ALERT, os.urandom(4096)], ids=["ack", "alert", "noise"])
def test_who_takes_the_port_of_a_dead_manager_ends_nobody(pool, words):
    pool.up(benefactors=2, drain=False)
    content = os.urandom(3 * MIB)
    (pool.mount / "before").write_bytes(content)
    others = [pid for member, pid in ((m["role"], m["pid"]) for m in pool.record["members"]) if member != "manager"]
    host, port = port_of(pool.record["manager_address"])
    pool.kill("manager")
    impostor = socket.socket()
    impostor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    wait_until(lambda: takes(impostor, host, port), "the port of the dead manager")
    came = []

    def answer():
        while True:
            try:
                who, _ = impostor.accept()
            except OSError:
                return
            came.append(who)
            try:
                who.sendall(words)
            except OSError:
                pass

    threading.Thread(target=answer, daemon=True).start()
    wait_until(lambda: len(came) >= 6, "members that come back to the port")
    for who in came:
        who.close()
    impostor.shutdown(socket.SHUT_RDWR)
    impostor.close()
    assert all(is_running(pid) for pid in others), "a member has ended"
    restart_manager(pool)
    wait_until(lambda: len(pool.status()["pool"]["benefactors"]) == 2, "the pool's return")
    assert (pool.mount / "before").read_bytes() == content
