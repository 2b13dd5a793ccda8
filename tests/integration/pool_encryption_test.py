"""Images that benefactors cannot read: `stdchk up --encrypt`."""

import errno
import os
import pathlib

import pytest
from conftest import drop_caches
from pool_copies_test import change_memory, check_metadata, redundant
from processes import BIN, run, wait_until

MIB = 1 << 20
MARKER = b"this is in no benefactor's memory, nor on its disk"


def image(chunks):
    """Random chunks with the marker at a place that every chunk has."""
    return b"".join(MARKER + os.urandom(MIB - len(MARKER)) for _ in range(chunks))


def arenas(pool, name="disk"):
    """Returns the arenas of all benefactors: their mapped memory of the unlinked files `name`."""
    return b"".join(memory_of(pid, name) for pid in pool.pids("benefactor"))


def memory_of(pid, mapped=""):
    """Returns a process's readable memory, of maps with `mapped` in their file names."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, mode = line.split()[:2]
            begin, end = (int(part, 16) for part in span.split("-"))
            if mode[0] != "r" or mapped not in line or line.rstrip().endswith(("[vvar]", "[vsyscall]")):
                continue
            memory.seek(begin)
            try:
                found.append(memory.read(end - begin))
            except OSError:
                continue
    return b"".join(found)


def key_of(pool):
    return pathlib.Path(pool.record["directory"]) / "key"


def test_benefactors_have_no_byte_of_an_encrypted_image(pool):
    """Searches the arenas and all other memory of the benefactors' processes."""
    disk = pool.folder / "disk"
    pool.up("--encrypt", "--disk", disk, benefactors=2, memory="64M", drain=False)
    content = image(3)
    (pool.mount / "app.N0.T1").write_bytes(content)
    (pool.mount / "app.N0.T2").write_bytes(content)
    stored = arenas(pool)
    assert stored.count(b"sealed.C") == 3  # it looks where chunks are; equal ones are stored once
    assert MARKER not in stored
    at = stored.index(b"sealed.C") + 4096
    piece = stored[at:at + 64]
    assert piece.count(0) < 32
    assert key_of(pool).stat().st_mode & 0o777 == 0o600
    key = key_of(pool).read_text().strip()
    for member in pool.record["members"]:
        cmdline = pathlib.Path(f"/proc/{member['pid']}/cmdline").read_bytes().decode()
        assert ("--key-file" in cmdline) == (member["role"] == "mount")
        assert key not in cmdline
        if member["role"] == "benefactor":
            assert MARKER not in memory_of(member["pid"])
    # The test itself finds what is not encrypted.
    plain = pool.mount_by_hand("plain")
    (plain / "app.N1.T1").write_bytes(content)
    assert arenas(pool).count(MARKER) == 3
    assert (pool.mount / "app.N1.T1").read_bytes() == content


def test_another_mount_with_the_key_reads_it_and_none_without(pool):
    pool.up("--encrypt", "--naming", "off", benefactors=2, drain=False)
    content = image(2) + b"its end"
    (pool.mount / "app.N0.T1").write_bytes(content)
    second = pool.mount_by_hand("second", "--key-file", key_of(pool))
    assert (second / "app.N0.T1").read_bytes() == content
    wrong = pool.folder / "wrong"
    wrong.touch(0o600)
    wrong.write_text(os.urandom(16).hex())
    for name, arguments in (("without", ()), ("other", ("--key-file", wrong))):
        point = pool.mount_by_hand(name, *arguments)
        with pytest.raises(PermissionError):
            (point / "app.N0.T1").read_bytes()
        assert "--key-file" in (pool.folder / f"{name}.log").read_text()


def test_a_changed_byte_of_a_sealed_chunk_is_found(pool):
    disk = pool.folder / "disk"
    pool.up("--encrypt", "--disk", disk, benefactors=1, memory="64M", drain=False)
    (pool.mount / "app.N0.T1").write_bytes(os.urandom(MIB))
    stored = arenas(pool)
    at = stored.index(b"sealed.C") + 4096
    change_memory(pool.pids("benefactor")[0], "disk", stored[at:at + 64])
    fresh = pool.mount_by_hand("fresh", "--key-file", key_of(pool))
    with pytest.raises(OSError) as failure:
        (fresh / "app.N0.T1").read_bytes()
    assert failure.value.errno == errno.EIO


# Bits that leave every CRC32C as it was, wherever they are turned over: the polynomial itself, lowest bit first.
CRC32C_BLIND = (1 | int(f"{0x1EDC6F41:032b}"[::-1], 2) << 1).to_bytes(5, "little")


def turn_over(pid, name, content, mask):
    """Inverts the bits of `mask` in the first bytes of `content`, in the mapped file `name` of a benefactor."""
    change_memory(pid, name, content, bytes(a ^ b for a, b in zip(content, mask)))


def test_bytes_that_keep_the_checksum_deceive_nobody_who_encrypts(pool):
    """A malicious benefactor chooses the bytes, so that the chunk's CRC32C stays valid. Without --encrypt only a
    comparison with the chunk's name finds the change."""
    disk = pool.folder / "disk"
    pool.up("--encrypt", "--naming", "off", "--disk", disk, benefactors=1, memory="64M", drain=False)
    content = os.urandom(MIB)
    (pool.mount / "app.N0.T1").write_bytes(content)
    plain = pool.mount_by_hand("plain")
    (plain / "app.N1.T1").write_bytes(content)
    (pid,) = pool.pids("benefactor")
    stored = arenas(pool)
    at = stored.index(b"sealed.R") + 4096
    turn_over(pid, "disk", stored[at:at + 64], CRC32C_BLIND)
    turn_over(pid, "disk", content[:64], CRC32C_BLIND)
    drop_caches()
    fresh = pool.mount_by_hand("fresh", "--key-file", key_of(pool))
    with pytest.raises(OSError) as failure:
        (fresh / "app.N0.T1").read_bytes()
    # The tag cannot tell changed bytes from bytes of another key.
    assert failure.value.errno == errno.EACCES
    # The checksum alone does not find the change: an image without encryption has the benefactor's bytes.
    read = (fresh / "app.N1.T1").read_bytes()
    assert read != content and read[5:] == content[5:]


def test_parity_and_the_scrub_work_on_what_is_sealed(pool):
    pool.up("--encrypt", "--copies", "ec(2,1)", benefactors=4, memory="64M", drain=False)
    content = image(6)
    (pool.mount / "app.N0.T1").write_bytes(content)
    wait_until(lambda: redundant(pool), "the parity")
    assert pool.stdchk("scrub", "--wait", pool.mount).returncode == 0
    pool.kill("benefactor", 0)
    drop_caches()
    fresh = pool.mount_by_hand("fresh", "--key-file", key_of(pool))
    assert (fresh / "app.N0.T1").read_bytes() == content
    wait_until(lambda: redundant(pool), "new copies of the lost chunks", seconds=60)
    check_metadata(pool)


def test_what_is_written_is_read_back_before_it_is_stored(pool):
    pool.up("--encrypt", "--chunking", "content", benefactors=2, drain=False)
    content = os.urandom(5 * MIB)
    with open(pool.mount / "app.N0.T1", "w+b", 0) as file:
        for at in range(0, len(content), 100_000):
            file.write(content[at:at + 100_000])
            assert os.pread(file.fileno(), 200, at // 2) == content[at // 2:at // 2 + 200]
    assert (pool.mount / "app.N0.T1").read_bytes() == content


def test_encryption_and_a_drain_directory_exclude_each_other(pool):
    done = pool.stdchk("up", "--mount", pool.mount, "--encrypt", "--drain", pool.drain,
                       check=False)
    assert done.returncode == 2 and "--encrypt and --drain" in done.stderr
    pool.up(benefactors=1)
    key = pool.folder / "key"
    key.touch(0o600)
    key.write_text(os.urandom(16).hex())
    point = pool.folder / "refused"
    point.mkdir()

    def refused(*arguments):
        done = run(BIN / "stdchk-mount", "--manager", pool.record["manager_address"],
                   "--secret-file", pool.record["secret_file"], "--encrypt", *arguments,
                   "--ready-file", pool.folder / "refused.ready", point, check=False, seconds=20)
        assert done.returncode == 1
        return done.stderr

    assert "drain directory" in refused("--key-file", key)
    assert "--encrypt needs --key-file" in refused()


def test_hosts_that_only_lend_get_no_key(pool):
    shell = pool.folder / "remote-shell"
    shell.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    shell.chmod(0o700)
    hosts = pool.folder / "hosts"
    hosts.write_text("one address=127.0.0.1 benefactors=1 memory=96M\n")
    pool.stdchk("up", "--mount", pool.mount, "--hosts", hosts, "--rsh", shell, "--encrypt")
    (member,) = [each for each in pool.record["members"] if each["role"] == "benefactor"]
    there = {path.name for path in pathlib.Path(member["directory"]).iterdir()}
    assert "benefactor.0.member" in there and "key" not in there and "secret" not in there
    (pool.mount / "f").write_bytes(MARKER)
    assert (pool.mount / "f").read_bytes() == MARKER
