"""Tests `stdchk similarity` on images of known similarity, and its errors."""

import json
import os
import pathlib
import pty
import random
import select
import subprocess

import pytest
from processes import BIN, run, wait_until

MIB = 1 << 20


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """8 MiB of random bytes; the same with one more byte in the middle; different bytes; a quarter
    changed."""
    folder = tmp_path_factory.mktemp("images")
    rng = random.Random(5)
    first = rng.randbytes(8 * MIB)
    contents = {
        "first": first,
        "again": first,
        "inserted": first[:4 * MIB] + b"x" + first[4 * MIB:],
        "other": rng.randbytes(8 * MIB),
        "quarter": rng.randbytes(2 * MIB) + first[2 * MIB:],
        "empty": b"",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def similarity(images, *names):
    files = [images / name for name in names]
    answer = json.loads(run(BIN / "stdchk", "similarity", "--json", "--sample", "64K", *files).stdout)
    assert answer["files"] == [str(file) for file in files]
    lines = {(line["technique"], line["parameters"]): line for line in answer["techniques"]}
    assert len(lines) == len(answer["techniques"]) == 3 + 4 * 25 + 3
    for line in lines.values():
        assert line["chunk_bytes_min"] <= line["chunk_bytes_mean"] <= line["chunk_bytes_max"]
        assert (line["megabytes_per_s"] > 0) == (line["image_bytes"] > 0)
    return answer["recommended"]["chunking"], lines


def share(lines, technique, parameters):
    return lines[(technique, parameters)]["similarity"]


def test_the_same_image_again_is_found_whole_by_each_technique(images):
    recommended, lines = similarity(images, "first", "again", "again")
    assert {line["similarity"] for line in lines.values()} == {1.0}
    assert recommended == "fixed"


def test_what_an_insertion_moves_is_found_by_content_only(images):
    recommended, lines = similarity(images, "first", "inserted")
    assert recommended == "content"
    half = 4 * MIB / (8 * MIB + 1)
    for chunk in ("1.0 KiB", "256.0 KiB", "1.0 MiB"):
        assert share(lines, "FsCH", chunk) == pytest.approx(half, abs=1e-9)
    assert share(lines, "stdchk", "mean 64.0 KiB") > 0.95
    # The papers' form without overlap misses a boundary that has moved by one byte.
    assert share(lines, "CbCH Rabin, no overlap", "m 64, k 8") < half + 0.05


def test_overlapping_windows_find_an_insertion_again(images):
    first = (images / "first").read_bytes()[:64 << 10]
    (images / "short").write_bytes(first)
    (images / "short-inserted").write_bytes(first[:1000] + b"x" + first[1000:])
    _, lines = similarity(images, "short", "short-inserted")
    for technique in ("CbCH SHA-1, overlap", "CbCH Rabin, overlap"):
        assert share(lines, technique, "m 32, k 8") > 0.95


def test_the_share_that_stayed_is_the_share_that_is_found(images):
    recommended, lines = similarity(images, "first", "quarter")
    assert recommended == "fixed"
    assert share(lines, "FsCH", "1.0 MiB") == pytest.approx(0.75)
    assert 0.7 < share(lines, "stdchk", "mean 256.0 KiB") <= 0.75


def test_nothing_alike_is_not_worth_naming(images):
    recommended, lines = similarity(images, "first", "other")
    assert recommended == "none"
    assert share(lines, "stdchk", "mean 64.0 KiB") == 0


def test_the_chunks_have_the_lengths_that_are_set(images):
    _, lines = similarity(images, "first", "other")
    fixed = lines[("FsCH", "256.0 KiB")]
    assert fixed["chunk_bytes_min"] == fixed["chunk_bytes_max"] == 256 << 10
    ours = lines[("stdchk", "mean 64.0 KiB")]
    assert 48 << 10 < ours["chunk_bytes_mean"] < 80 << 10
    assert ours["chunk_bytes_max"] <= 256 << 10
    windows = lines[("CbCH Rabin, no overlap", "m 64, k 10")]
    assert 0.5 * (64 << 10) < windows["chunk_bytes_mean"] < 2 * (64 << 10)
    assert windows["image_bytes"] == 16 * MIB
    assert lines[("CbCH Rabin, overlap", "m 64, k 10")]["image_bytes"] == 128 << 10


def test_the_table_says_what_to_set(images):
    text = run(BIN / "stdchk", "similarity", "--sample", "4K", images / "first", images / "inserted").stdout
    assert "CbCH SHA-1, no overlap" in text
    assert "Set --chunking content" in text
    assert "first 4.0 KiB of each image" in text


def test_an_empty_image_is_no_error(images):
    recommended, lines = similarity(images, "empty", "empty")
    assert recommended == "none"
    assert lines[("FsCH", "1.0 MiB")]["chunk_bytes_max"] == 0


def test_images_of_any_length_up_to_the_end_of_a_page(images):
    """The program must not read past the end of a mapped image."""
    rng = random.Random(6)
    for size in (1, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, 65536, 65537, 3 * 4096, 16384 - 1):
        content = rng.randbytes(size)
        (images / "odd").write_bytes(content)
        (images / "odd-again").write_bytes(content)
        _, lines = similarity(images, "odd", "odd-again", "empty", "odd")
        assert share(lines, "FsCH", "1.0 KiB") == pytest.approx(1 / 3)  # matched, empty, unmatched


def test_an_image_of_nothing_but_a_hole(images):
    with open(images / "hole", "wb") as file:
        file.truncate(64 * MIB + 5)
    recommended, lines = similarity(images, "hole", "hole")
    assert recommended == "fixed"
    assert share(lines, "stdchk", "mean 64.0 KiB") == 1


def test_an_image_that_gets_shorter_meanwhile_is_said(images):
    path = images / "shrinks"
    with open(path, "wb") as file:
        file.truncate(1 << 30)
    process = subprocess.Popen([BIN / "stdchk", "similarity", path, path], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    wait_until(lambda: str(path) in pathlib.Path(f"/proc/{process.pid}/maps").read_text(), "the image mapped")
    os.truncate(path, 4096)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "has become shorter" in said


@pytest.mark.parametrize("names, says", [
    ((), "name at least two files"),
    (("first",), "name at least two files"),
    (("first", "absent"), "No such file"),
    (("first", "."), "is no file"),
])
def test_what_cannot_be_compared_is_said(images, names, says):
    done = run(BIN / "stdchk", "similarity", *(images / name for name in names), check=False)
    assert done.returncode == 2
    assert says in done.stderr


def test_a_terminal_gets_a_progress_bar(images):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(BIN / "stdchk", ["stdchk", "similarity", "--sample", "64K",
                                  str(images / "first"), str(images / "again")])
    seen = b""
    while select.select([terminal], [], [], 60)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert seen.count(b"\r[") > 3 and b" %" in seen
