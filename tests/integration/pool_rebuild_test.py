"""Tests the loss of the manager's disk, and a manager taken for dead: all committed images survive."""

import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from conftest import all_read_back, drop_caches, write_random
from processes import BIN, is_running, wait_until

MIB = 1 << 20


def write_files(folder, count=8, size=2 * MIB):
    return write_random(folder, [f"app.N{i}.T1" for i in range(count)], size)


def writes(path):
    try:
        path.write_bytes(b"x" * MIB)
        return path.read_bytes() == b"x" * MIB
    except OSError:
        return False


def lists(folder):
    """The names in the folder; None: the mount has not found the manager yet."""
    try:
        return os.listdir(folder)
    except OSError:
        return None


def metadata_copies(pool):
    return pool.status()["pool"]["log_copies"]


def test_a_pool_whose_manager_lost_its_disk_is_rebuilt_from_its_benefactors(pool):
    pool.up("--policy", "copies=2", memory="64M", drain=False)
    wait_until(lambda: metadata_copies(pool) == 3, "three copies of the metadata")
    folder = pool.mount / "app"
    expected = write_files(folder)
    (folder / "removed").write_bytes(b"x")
    (folder / "removed").unlink()
    pool.stdchk("policy", "set", folder, "copies=1")
    os.symlink("app.N0.T1", folder / "link")
    policy = pool.stdchk("policy", "get", folder).stdout
    listing = [(entry["path"], entry.get("size")) for entry in pool.list("app")]
    assert "answers" in pool.stdchk("recover", pool.mount, check=False).stderr

    pool.kill("manager")
    shutil.rmtree(os.path.join(pool.record["directory"], "manager"))
    assert "rebuilt from the metadata on benefactors" in pool.stdchk("recover", pool.mount).stdout
    drop_caches()
    wait_until(lambda: all_read_back(folder, expected), "the images", seconds=60)
    assert [(entry["path"], entry.get("size")) for entry in pool.list("app")] == listing
    assert pool.stdchk("policy", "get", folder).stdout == policy
    assert os.readlink(folder / "link") == "app.N0.T1"
    assert pool.status()["pool"]["epoch"] >= 256
    wait_until(lambda: writes(folder / "after"), "writing to the rebuilt pool", seconds=60)
    pool.stdchk("check", pool.mount)

    # With its disk, `recover` starts the manager from its journal.
    pool.kill("manager")
    assert "from its journal" in pool.stdchk("recover", pool.mount).stdout
    drop_caches()
    wait_until(lambda: all_read_back(folder, expected), "the images", seconds=60)
    pool.down()


def test_a_rebuild_that_lacks_what_was_answered_says_so(pool):
    pool.up(benefactors=3, memory="64M", drain=False)
    # the witness knows the newest record's number, but stores no records
    pool.benefactor_by_hand("witness", "--memory", "16M", "--log-memory", "1")
    wait_until(lambda: metadata_copies(pool) == 3, "three copies of the metadata")
    behind, *others = pool.pids("benefactor")
    os.kill(behind, signal.SIGSTOP)
    try:
        (pool.mount / "sent").mkdir()  # the stopped benefactor receives this record when it continues
        wait_until(lambda: metadata_copies(pool) == 2, "the end of a copy that is not kept up")
        (pool.mount / "later").mkdir()
        time.sleep(1.5)  # a heartbeat to the witness
        pool.kill("manager")
        for pid in others:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.kill(behind, signal.SIGCONT)
    shutil.rmtree(os.path.join(pool.record["directory"], "manager"))

    told = pool.stdchk("recover", pool.mount, seconds=120)
    assert "that none of those who came has: what these did is lost" in told.stdout
    wait_until(lambda: lists(pool.mount) == ["sent"], "the folder of the stored record")


# Runs in its own process: starting another process would close the open files there, which commits them.
NEW_FILES = """
import os, sys
half = os.urandom(3 << 20)
names = ("renamed.part", "owned", "times", "attribute", "gone", "replaced.part")
files = {name: os.open(name, os.O_RDWR | os.O_CREAT, 0o644) for name in names}
for file in files.values():
    os.write(file, half)
os.rename("renamed.part", "renamed")
os.rename("replaced.part", "replaced")
os.fchmod(files["owned"], 0o640)
if os.getuid() == 0:
    os.fchown(files["owned"], 7, 8)
os.utime(files["times"], ns=(1_000_000_000, 2_000_000_000))
os.setxattr(files["attribute"], "user.note", b"kept")
os.unlink("gone")
print("paused", flush=True)
sys.stdin.readline()
os.rename("owned", "owner")
for name in set(names) - {"times"}:
    os.write(files[name], half)
assert os.pread(files["gone"], 2 * len(half), 0) == 2 * half
for file in files.values():
    os.close(file)
for name in ("attribute", "owner", "renamed", "replaced"):
    with open(name, "rb") as file:
        assert file.read() == 2 * half, name
with open("times", "rb") as file:
    assert file.read() == half
"""


def test_new_files_stay_what_was_made_of_them_when_the_manager_is_killed(pool):
    pool.up(memory="64M", drain=False)
    folder = pool.mount / "new"
    folder.mkdir()
    (folder / "replaced").write_bytes(b"old")
    writer = subprocess.Popen([sys.executable, "-c", NEW_FILES], cwd=folder, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline() == "paused\n"
        pool.kill("manager")
        assert "from its journal" in pool.stdchk("recover", pool.mount).stdout
        writer.communicate("\n", timeout=60)
        assert writer.returncode == 0
    finally:
        writer.kill()
        writer.wait(10)

    drop_caches()
    assert sorted(os.listdir(folder)) == ["attribute", "owner", "renamed", "replaced", "times"]
    for path in folder.iterdir():
        assert path.stat().st_size == (3 if path.name == "times" else 6) * MIB, path
    assert (folder / "times").stat().st_mtime_ns == 2_000_000_000
    owner = (folder / "owner").stat()
    assert owner.st_mode & 0o7777 == 0o640
    assert os.getuid() != 0 or (owner.st_uid, owner.st_gid) == (7, 8)
    assert os.getxattr(folder / "attribute", "user.note") == b"kept"
    pool.stdchk("check", pool.mount)


def test_the_metadata_of_a_pool_full_of_small_chunks_is_kept(pool):
    pool.up("--chunk-size", "64K", memory="64M", drain=False)
    expected = write_files(pool.mount / "app", count=13, size=16 * MIB)
    wait_until(lambda: metadata_copies(pool) == 3, "three copies of the metadata")
    pool.kill("manager")
    shutil.rmtree(os.path.join(pool.record["directory"], "manager"))
    pool.stdchk("recover", pool.mount)
    drop_caches()
    wait_until(lambda: all_read_back(pool.mount / "app", expected), "the images", seconds=60)


def flip_bit(path, place):
    """Flips a bit in the first occurrence of these characters."""
    content = bytearray(path.read_bytes())
    content[content.index(place)] ^= 1
    path.write_bytes(content)


def test_a_journal_that_is_damaged_starts_no_manager_and_the_pool_is_rebuilt_without_it(pool):
    pool.up(memory="64M", drain=False)
    wait_until(lambda: metadata_copies(pool) == 3, "three copies of the metadata")
    expected = write_files(pool.mount / "app")
    pool.kill("manager")
    state = pathlib.Path(pool.record["directory"], "manager")
    journal = state / "journal.db"
    database = sqlite3.connect(journal)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    flip_bit(journal, b"app.N3.T1")

    refused = pool.stdchk("recover", pool.mount, check=False)
    assert refused.returncode != 0
    why = r"journal\.db is damaged: record \d+ does not match its checksum.*--rebuild"
    assert re.search(why, refused.stderr)
    move_away(state, pool.mount.parent)
    assert "rebuilt from the metadata on benefactors" in pool.stdchk("recover", pool.mount).stdout
    drop_caches()
    wait_until(lambda: all_read_back(pool.mount / "app", expected), "the images", seconds=60)


def move_away(state, folder):
    for part in state.glob("journal.db*"):
        part.rename(folder / f"damaged.{part.name}")


WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24


def transactions(wal):
    """The frames of each transaction in the bytes of a journal.db-wal: pairs of first and last offset."""
    page = int.from_bytes(wal[8:12], "big")
    frames = range(WAL_HEADER_BYTES, len(wal) - page, FRAME_HEADER_BYTES + page)
    valid = [at for at in frames if wal[at + 8 : at + 16] == wal[16:24]]
    first, found = None, []
    for at in valid:
        first = at if first is None else first
        if int.from_bytes(wal[at + 4 : at + 8], "big") != 0:  # this frame ends a transaction
            found.append((first, at))
            first = None
    return found


def damage(path, how):
    if how == "none":
        return path.unlink()
    content = bytearray(path.read_bytes())
    found = transactions(content)
    assert len(found) > 8
    first, last = found[{"first": 0, "middle": len(found) // 2, "last": -1}[how]]
    content[(first if how == "first" else last) + FRAME_HEADER_BYTES + 100] ^= 1
    path.write_bytes(content)
    return None


@pytest.mark.parametrize("how", ["first", "middle", "last", "none"])
def test_a_journal_that_has_lost_its_end_starts_no_manager_and_the_pool_is_rebuilt_without_it(pool, how):
    pool.up(memory="64M", drain=False)
    wait_until(lambda: metadata_copies(pool) == 3, "three copies of the metadata")
    expected = write_files(pool.mount / "app")
    time.sleep(1.5)  # a heartbeat to each benefactor
    pool.kill("manager")
    state = pathlib.Path(pool.record["directory"], "manager")
    damage(state / "journal.db-wal", how)

    for _ in range(2):
        refused = pool.stdchk("recover", pool.mount, check=False)
        assert refused.returncode != 0
        assert re.search(r"journal\.db is damaged: its end is missing.*--rebuild", refused.stderr), refused.stderr
    move_away(state, pool.mount.parent)
    assert "rebuilt from the metadata on benefactors" in pool.stdchk("recover", pool.mount).stdout
    drop_caches()
    wait_until(lambda: all_read_back(pool.mount / "app", expected), "the images", seconds=60)
    assert "is lost" not in pathlib.Path(pool.record["directory"], "manager.log").read_text()
    pool.stdchk("check", pool.mount)


def test_a_manager_that_is_killed_again_and_again_has_no_damaged_journal(pool):
    pool.up(memory="64M", drain=False)
    folder = pool.mount / "app"
    expected = write_files(folder)
    for i in range(6):
        (folder / f"named{i}").mkdir()
        pool.kill("manager")
        assert "from its journal" in pool.stdchk("recover", pool.mount).stdout
    drop_caches()
    wait_until(lambda: all_read_back(folder, expected), "the images", seconds=60)
    assert len(list(folder.glob("named*"))) == 6


class Door:
    """A fixed address whose manager can be exchanged."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self.listener.getsockname()[1]}"
        self.target = None
        self.links = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                inside, _ = self.listener.accept()
            except OSError:
                return
            try:
                outside = socket.create_connection(("127.0.0.1", self.target), 5)
                outside.settimeout(None)
            except OSError:
                inside.close()
                continue
            self.links += [inside, outside]
            for one, other in ((inside, outside), (outside, inside)):
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    def carry(self, one, other):
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        links, self.links = self.links, []
        for link in links:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def end(self):
        self.listener.close()
        self.cut()


def test_a_stopped_manager_that_wakes_up_does_no_harm_and_ends(pool):
    secret = pool.folder / "secret"
    secret.write_text("0123456789abcdef" * 2 + "\n")
    secret.chmod(0o600)

    def start(name, program, *words):
        log = open(pool.folder / f"{name}.log", "ab")
        process = subprocess.Popen([BIN / program, "--secret-file", secret, *words], stdout=log, stderr=log,
                                   stdin=subprocess.DEVNULL, env=pool.environment)
        log.close()
        pool.hand_processes.append(process)
        return process

    def start_manager(name, *words):
        address = pool.folder / f"{name}.address"
        process = start(name, "stdchk-manager", "--state", pool.folder / name, "--address-file", address,
                        *words)
        return process, address

    def port(address):
        wait_until(address.exists, "the manager", seconds=60)
        return int(address.read_text().rpartition(":")[2])

    door = Door()
    try:
        old, address = start_manager("old")
        door.target = port(address)
        for i in range(3):
            start(f"b{i}", "stdchk-benefactor", "--manager", door.address, "--memory", "64M",
                  "--ready-file", pool.folder / f"b{i}.ready")
        wait_until(lambda: all((pool.folder / f"b{i}.ready").exists() for i in range(3)), "the benefactors")
        mount = pool.mount_of(door.address, secret, "hand")
        expected = write_files(mount / "app")

        old.send_signal(signal.SIGSTOP)
        new, address = start_manager("new", "--rebuild", "--listen", "127.0.0.1")
        # The address file appears only after the rebuild; until then the log names the address for
        # benefactors.
        waits = re.compile(r"waits at tcp:127.0.0.1:(\d+) ")
        wait_until(lambda: waits.search((pool.folder / "new.log").read_text()), "the new manager")
        door.target = int(waits.search((pool.folder / "new.log").read_text()).group(1))
        assert port(address) == door.target
        drop_caches()
        wait_until(lambda: all_read_back(mount / "app", expected), "the images", seconds=60)
        wait_until(lambda: writes(mount / "app" / "new"), "writing with the new manager", seconds=60)

        # All processes meet the old manager again.
        door.target = int((pool.folder / "old.address").read_text().rpartition(":")[2])
        door.cut()
        old.send_signal(signal.SIGCONT)
        wait_until(lambda: old.poll() is not None, "the end of the old manager", seconds=60)
        assert old.returncode != 0
        assert "has taken this pool over" in (pool.folder / "old.log").read_text()

        door.target = port(address)
        drop_caches()
        wait_until(lambda: all_read_back(mount / "app", expected), "the images", seconds=60)
        assert (mount / "app" / "new").read_bytes() == b"x" * MIB
        assert is_running(new.pid)
    finally:
        if old.poll() is None:
            old.send_signal(signal.SIGCONT)
        door.end()
