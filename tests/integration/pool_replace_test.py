"""Names that other processes replace all the time: each call finds a version, and never an older one than before.

Each version has a number, which grows with each replacement. A version shows its number to every way of looking at it.
The tests run on a pool, and on a mount over memory (STDCHK_FUSE_OVER_MEMORY) that keeps no replaced file at all.
"""

import os
import signal
import subprocess
import sys

import pytest
from processes import PATIENCE

OVER_MEMORY = os.environ.get("STDCHK_FUSE_OVER_MEMORY")
LOOKERS = 2  # on each mount
ROUNDS = 2500  # of each looker; a round has two opens
OPENS_MIN = 20_000

# Replaces names until its input ends. argv: folder, file with the number of the newest version, name of the process.
# Replacers take turns, so that the versions have one order. The file gets the number of a version that all names have.
REPLACER = """
import fcntl, mmap, os, select, struct, sys
turn = os.open(sys.argv[2], os.O_RDWR)
newest = mmap.mmap(turn, 8)
os.chdir(sys.argv[1])
own = sys.argv[3]
def replace(name, content, mode=0o644):
    with open(own, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
        os.setxattr(file.fileno(), "user.number", b"%d" % number)
    os.rename(own, name)
def replace_link(name, target):
    os.symlink(target, own)
    os.rename(own, name)
replaced = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    fcntl.flock(turn, fcntl.LOCK_EX)
    number = struct.unpack("q", newest[:])[0] + 1
    replace("file", b"%-9d\\n" % number + b"." * number)
    replace("script", b"#!/bin/sh\\necho %d\\n" % number, 0o755)
    replace_link("number", f"{number}")
    replace_link("link", "file")
    newest[:] = struct.pack("q", number)
    fcntl.flock(turn, fcntl.LOCK_UN)
    replaced += 1
print(replaced)
"""

# Looks at the names in all ways. argv: folder, file with the number of the newest version, rounds, "same" or "other".
# On the same mount as the replacers, a call that begins when a version has all names finds no older version.
LOOKER = """
import mmap, os, struct, subprocess, sys
newest = mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 8)
os.chdir(sys.argv[1])
rounds, same = int(sys.argv[3]), sys.argv[4] == "same"
def opened(name):
    file = os.open(name, os.O_RDONLY)
    content = os.read(file, 1 << 20)
    os.close(file)
    number = int(content[:10])
    assert content[10:] == b"." * number, content
    return number
def executed():
    return int(subprocess.run(["./script"], stdout=subprocess.PIPE, check=True).stdout)
ways = {
    "open": lambda: opened("file"),
    "open by a link": lambda: opened("link"),
    "stat": lambda: os.stat("file").st_size - 10,
    "stat by a link": lambda: os.stat("link").st_size - 10,
    "readlink": lambda: int(os.readlink("number")),
    "getxattr": lambda: int(os.getxattr("file", "user.number")),
    "exec": executed,
}
often = {"open": 1, "open by a link": 1, "exec": 50}
last = dict.fromkeys(ways, 0)
bad = 0
for i in range(rounds):
    for way, look in ways.items():
        if i % often.get(way, 4): continue
        there = struct.unpack("q", newest[:])[0] if same else 0
        try:
            number = look()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{way}: {error} in round {i}", flush=True)
            bad += 1
            continue
        if number < max(last[way], there):
            print(f"{way}: version {number} after {last[way]}, and {there} was there, in round {i}", flush=True)
            bad += 1
        last[way] = number
sys.exit(1 if bad else 0)
"""


def start(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check_replaced_names(replaced_on, looked_on, newest):
    """Two processes replace the names; on each mount of `looked_on`, others look at them."""
    newest.write_bytes(bytes(8))
    replacers = [start(REPLACER, mount, newest, f"of{i}") for i, mount in enumerate(replaced_on)]
    while int.from_bytes(newest.read_bytes(), "little") == 0:
        assert all(one.poll() is None for one in replacers)
    lookers = []
    for mount in looked_on:
        same = "same" if {mount} == set(replaced_on) else "other"
        lookers += [start(LOOKER, mount, newest, ROUNDS, same) for _ in range(LOOKERS)]
    said = [one.communicate(timeout=120 * PATIENCE)[0] for one in lookers]
    replaced = [int(one.communicate()[0]) for one in replacers]
    assert said == [""] * len(lookers)
    assert [one.returncode for one in lookers] == [0] * len(lookers)
    assert len(lookers) * ROUNDS * 2 >= OPENS_MIN and min(replaced) > 20


@pytest.mark.parametrize("second", ["same mount", "other mount"])
def test_a_name_that_is_replaced_all_the_time_always_has_a_version(pool, second):
    pool.up(benefactors=2, memory="256M", drain=False)
    there = pool.mount_by_hand("there")
    second_mount = pool.mount if second == "same mount" else there
    check_replaced_names((pool.mount, second_mount), (pool.mount, there), pool.folder / "newest")


@pytest.mark.skipif(not OVER_MEMORY, reason="STDCHK_FUSE_OVER_MEMORY is not set")
def test_a_repeated_call_needs_no_replaced_file_of_the_manager(tmp_path):
    """The pool forgets each replaced file at once, as a manager does that is short of space or starts again."""
    mounts = [tmp_path / "here", tmp_path / "there"]
    for mount in mounts:
        mount.mkdir()
    daemon = subprocess.Popen([OVER_MEMORY, *mounts], stdout=subprocess.PIPE,
                              env=os.environ | {"STDCHK_TEST_REPLACED_MAX": "0"})
    try:
        assert daemon.stdout.readline() == b"ready\n"
        check_replaced_names((mounts[0], mounts[0]), mounts, tmp_path / "newest")
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=30) == 0
