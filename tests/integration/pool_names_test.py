"""Tests names with control characters, and names that are not UTF-8. Commands print them escaped. The manifest has the
checksums of such files."""

import json
import os

import pytest
from conftest import Pool
from processes import BIN, run

ESCAPES = b"a\x1b[31m\x9bred\x07"  # a colour, a control character of one byte, a bell
NOT_UTF8 = b"caf\xe9-\xff\xc3("


def at(folder, name):
    return os.path.join(os.fsencode(folder), name)


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def text_of(pool, *words, check=True):
    """Runs a command. Returns its output, as bytes without control characters except line ends."""
    done = run(BIN / "stdchk", *words, check=False, env=pool.environment, errors="surrogateescape")
    assert not check or done.returncode == 0, done.stderr
    said = (done.stdout + done.stderr).encode(errors="surrogateescape")
    assert not [byte for byte in said if (byte < 0x20 and byte != 0x0A) or byte == 0x7F], said
    assert b"\x9b" not in said.replace(b"\xc2\x9b", b"")
    return said


def test_no_command_prints_what_a_terminal_obeys(pool):
    pool.up(benefactors=1, memory="64M")
    folder = at(pool.mount, b"dir" + ESCAPES)
    os.mkdir(folder)
    file = at(folder, ESCAPES)
    write(file, b"x")
    name = b"a\\x1b[31m\\x9bred\\x07"
    for words in (["ls", pool.mount], ["ls", "-l", os.fsdecode(folder)], ["stat", os.fsdecode(file)],
                  ["stat", os.fsdecode(folder)], ["set", "list", os.fsdecode(folder)]):
        said = text_of(pool, *words)
        assert words[0] == "set" or name in said, (words, said)
    # Paths in errors, and in the answers about the drain directory.
    assert name in text_of(pool, "stat", os.fsdecode(at(folder, b"no" + ESCAPES)), check=False)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    drained = at(at(pool.drain, b"dir" + ESCAPES), ESCAPES)
    os.unlink(drained)
    assert name in text_of(pool, "safe", os.fsdecode(file), check=False)
    write(at(pool.drain, ESCAPES), b"in no manifest")
    assert name in text_of(pool, "verify", pool.drain, check=False)


@pytest.mark.parametrize("name", [NOT_UTF8, ESCAPES], ids=["not UTF-8", "escapes"])
def test_a_name_of_any_bytes_has_checksums_in_the_manifest(pool, tmp_path, name):
    pool.up(benefactors=1, memory="64M")
    content = os.urandom(100_000)
    (pool.mount / "run").mkdir()
    write(at(pool.mount / "run", name), content)
    pool.down("--drain")
    verified = json.loads(run(BIN / "stdchk", "verify", "--json", pool.drain).stdout)
    assert (verified["files"], verified["bad"], verified["unlisted"]) == (1, [], [])
    assert verified["checked_bytes"] == len(content)
    other = Pool(tmp_path)
    try:
        other.up(benefactors=1, memory="64M", drain=False)
        loaded = json.loads(other.stdchk("stage-in", "--json", pool.drain).stdout)
        assert (loaded["files"], loaded["unlisted"], loaded["checked_bytes"]) == (1, 0, len(content))
        with open(at(other.mount / "run", name), "rb") as file:
            assert file.read() == content
        other.down()
    finally:
        other.clean()
    # The next pool reads the checksums: bytes that others change are not read as if they were right.
    drained = at(pool.drain / "run", name)
    times = os.stat(drained)
    with open(drained, "r+b") as file:
        file.write(bytes([content[0] ^ 1]))
    os.utime(drained, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run(BIN / "stdchk", "verify", pool.drain, check=False).returncode == 1
    pool.up(benefactors=1, memory="64M")
    with pytest.raises(OSError), open(at(pool.mount / "run", name), "rb") as file:
        file.read()
    # The entry of a removed file goes.
    os.unlink(at(pool.mount / "run", name))
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert not (pool.drain / "run" / ".stdchk-manifest").exists()
