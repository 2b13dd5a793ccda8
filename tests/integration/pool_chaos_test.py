"""Kills writers and renames files all the time, on one of two mounts. Readers on the other mount see whole images only.
The drain directory ends up with the same tree."""

import os
import random
import subprocess
import sys
import time

import pytest
from processes import run

SECONDS = 12
GROUPS = 4  # names with equal numbers modulo GROUPS have one writer at a time

ACTOR = """
import errno, hashlib, os, random, signal, struct, sys, time
kind, folder, seed, end = sys.argv[1], sys.argv[2], int(sys.argv[3]), time.monotonic() + float(sys.argv[4])
names = [f"{folder}/f{i}" for i in range(24) if str(i % 4) in sys.argv[5]]
rng = random.Random(seed)

def image(number):
    body = random.Random(seed * 100000 + number).randbytes(rng.choice((100, 5000, 1 << 20, 3000000)))
    return struct.pack("<Q", len(body)) + hashlib.sha256(body).digest() + body

def write(name, number):
    with open(name, "wb") as file:
        try:
            file.write(image(number))
            file.flush()
        except OSError as error:
            # EIO may follow a kill in the middle of a rename (docs/guide/failures.md). The writer ends like an
            # aborted job, which leaves no part of the file. A writer that went on would close a partial file.
            if "0" in sys.argv[5] and error.errno == errno.EIO:
                os.kill(os.getpid(), signal.SIGKILL)
            raise

def act(name, number):
    kinds = rng.random()
    if kinds < 0.5:
        write(name, number)
    elif kinds < 0.7:
        write(f"{name}.new", number)
        os.rename(f"{name}.new", name)
    elif kinds < 0.85:
        os.unlink(name)
    else:
        os.rename(name, rng.choice(names))

def look(name):
    with open(name, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    if len(data) != 40 + size or hashlib.sha256(data[40:]).digest() != data[8:40]:
        sys.exit(f"{name}: {len(data)} bytes are no whole image of {size}")

done = 0
while time.monotonic() < end:
    try:
        act(rng.choice(names), done) if kind == "write" else look(rng.choice(names))
        done += 1
    except FileNotFoundError:
        pass
print(done)
"""


def actor(kind, folder, seed, groups, seconds=SECONDS):
    words = [sys.executable, "-c", ACTOR, kind, folder, seed, seconds, groups]
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)


def test_two_mounts_show_whole_images_whatever_happens_to_writers(pool):
    pool.up(benefactors=3)
    second = pool.mount_by_hand("second")
    writers = [actor("write", pool.mount, 1, "1"), actor("write", second, 2, "2"),
               actor("write", pool.mount, 3, "3")]
    readers = [actor("read", pool.mount, 4, "2"), actor("read", second, 5, "013")]
    rng = random.Random(6)
    end = time.monotonic() + SECONDS
    seed = 100
    while time.monotonic() < end - 2:
        killed = actor("write", pool.mount, seed, "0")
        time.sleep(0.3 + rng.random() * 0.7)
        killed.kill()
        killed.wait(10)
        killed.stdout.close()
        seed += 1
    for process in writers + readers:
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert int(out) > 20, "it did next to nothing"
    assert seed > 101
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    names = sorted(os.listdir(pool.mount))
    assert names and names == sorted(n for n in os.listdir(pool.drain) if not n.startswith(".stdchk-"))
    for name in names:
        run("cmp", pool.mount / name, pool.drain / name)
        run("cmp", second / name, pool.drain / name)


CHANGES = {
    "rename": "os.rename(a, b); os.rename(b, a)",
    "link": "os.link(a, b); os.unlink(b)",
    "attribute": "os.setxattr(a, 'user.x', b'1'); os.removexattr(a, 'user.x')",
    "mode": "os.chmod(a, 0o600); os.chmod(a, 0o644)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_reader_of_what_a_killed_process_changed_gets_no_error_at_its_close(pool, change):
    """The kernel flushes an inode's times after such a change, and the caller's death interrupts the flush. The next
    close() of the inode must not report the interrupted flush as an error."""
    pool.up(benefactors=1)
    names = [pool.mount / "a", pool.mount / "b"]
    names[0].write_bytes(b"content")
    program = f"import os, sys\nprint(flush=True)\na, b = sys.argv[1:]\nwhile True: {change}"
    for _ in range(10):
        names.sort(key=lambda name: not name.exists())
        names[1].unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", program, *names], stdout=subprocess.PIPE) as changer:
            changer.stdout.readline()
            time.sleep(0.05)
            changer.kill()
        file = next(os.open(name, os.O_RDONLY) for name in names if name.exists())
        assert os.read(file, 100) == b"content"
        os.close(file)
