"""Tests the stdchk command: start, end, questions, and its error messages."""

import errno
import fcntl
import json
import math
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import termios
import time

import pytest
from conftest import all_read_back, drop_caches, write_random
from processes import BIN, ROOT, is_running, leads_to, run, stopped, wait_until

MIB = 1 << 20
FAKE_SHELL = """#!/bin/sh
# Takes the place of ssh: the "host" is this one.
echo "$1" >> "$0.hosts"
shift
exec "$@"
"""


def test_up_prints_how_to_use_the_pool_and_down_leaves_nothing(pool):
    done = pool.up(benefactors=2)
    assert f"The pool is up at {pool.mount}" in done.stdout
    assert "stdchk down --drain" in done.stdout
    record = pool.record
    directory = pathlib.Path(record["directory"])
    assert directory.stat().st_mode & 0o777 == 0o700
    assert pathlib.Path(record["secret_file"]).stat().st_mode & 0o777 == 0o600
    assert [member["role"] for member in record["members"]] == [
        "manager", "benefactor", "benefactor", "mount"]
    for member in record["members"]:
        # Each daemon has its own session, so it outlives the terminal.
        assert os.getsid(member["pid"]) == member["pid"]
    pool.down()
    assert not directory.exists()
    assert not any(is_running(member["pid"]) for member in record["members"])
    assert not os.path.ismount(pool.mount)


def test_the_mount_starts_while_the_benefactors_take_their_memory(pool):
    pool.up(benefactors=2)
    directory = pathlib.Path(pool.record["directory"])
    # The mount's key is written before the mount starts, the ready file when a benefactor is of use.
    begun = (directory / "mount.member").stat().st_mtime_ns
    assert all(begun < ready.stat().st_mtime_ns for ready in directory.glob("benefactor.*.ready"))
    (pool.mount / "file").write_bytes(b"usable")
    assert [member["role"] for member in pool.record["members"]] == ["manager", "benefactor", "benefactor", "mount"]


def test_a_second_up_at_the_same_mount_is_refused(pool):
    pool.up(benefactors=1)
    done = pool.stdchk("up", "--mount", pool.mount, check=False)
    assert done.returncode == 2
    assert "up at" in done.stderr and "already" in done.stderr
    (pool.mount / "still").write_bytes(b"works")
    assert (pool.mount / "still").read_bytes() == b"works"


@pytest.mark.parametrize("arguments, words", [
    (["--memory", "3.5XB"], ["--memory", "3.5XB", "allowed"]),
    (["--chunk-size", "3M"], ["--chunk-size", "power of two"]),
    (["--benefactors", "0"], ["--benefactors", "from 1"]),
    (["--transport", "pigeon"], ["--transport", "tcp"]),
    (["--transport", "ofi:tcp"], ["--transport", "strangers", "use tcp"]),
    (["--memory", "900T"], ["PiB", "available", "--memory"]),
    (["--hosts", "/nonexistent"], ["--hosts", "/nonexistent"]),
    (["--no-such-flag"], ["--no-such-flag", "--help"]),
])
def test_bad_flags_are_one_sentence_and_status_2(pool, arguments, words):
    done = pool.stdchk("up", "--mount", pool.mount, *arguments, check=False)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list((pool.runtime / "stdchk").glob("pool*/pool.json"))


def test_a_mount_point_that_is_in_use_is_refused(pool):
    pool.mount.mkdir()
    (pool.mount / "file").write_text("here")
    done = pool.stdchk("up", "--mount", pool.mount, check=False)
    assert done.returncode == 2 and "not empty" in done.stderr
    done = pool.stdchk("up", "--mount", "/proc", check=False)
    assert done.returncode == 2 and "in use" in done.stderr


# Shows a device directory without /dev/fuse, in new namespaces.
WITHOUT_FUSE = """
mkdir "$1" && mount -t tmpfs dev "$1"
for each in null zero full random urandom shm; do
  if [ -d /dev/$each ]; then mkdir "$1/$each"; else touch "$1/$each"; fi
  mount --rbind /dev/$each "$1/$each"
done
mount --rbind "$1" /dev
shift && exec "$@"
"""

def run_without_fuse(pool, *command):
    return run("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", WITHOUT_FUSE, "sh",
               pool.folder / "dev", *command, check=False, env=pool.environment, seconds=30)


def test_up_without_a_fuse_device_says_what_to_do_and_leaves_nothing(pool):
    done = run_without_fuse(pool, BIN / "stdchk", "up", "--mount", pool.mount, "--benefactors", "1", "--memory", "64M")
    assert done.returncode == 2
    for words in ("the pool was not started", "/dev/fuse is not there", "modprobe fuse", "--device /dev/fuse", "stdchk.h",
                  "restart --to", "--no-mount"):
        assert words in done.stderr
    assert not list((pool.runtime / "stdchk").glob("pool*/pool.json"))
    assert str(pool.runtime) not in run("ps", "-eo", "args").stdout.replace("ps -eo", "")


def test_without_fuse_a_pool_can_do_what_is_said_to_remain_possible(pool):
    """Without a mount, stages in drained images, loads them by rank, lists and drains. c_api_test.py tests
    writing without a mount."""
    pool.up(benefactors=1, memory="64M")
    image = os.urandom(3 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(image)
    pool.down("--drain")
    pool.drain.rename(pool.folder / "first")
    (pool.folder / "loaded").mkdir()
    script = f"""set -e; PATH={BIN}:$PATH
        eval "$(stdchk up --no-mount --export --mount {pool.mount} --drain {pool.drain} --memory 64M)"
        trap 'stdchk down {pool.mount}' EXIT
        test -s "$STDCHK_SECRET_FILE"; test -n "$STDCHK_MANAGER"
        test -z "$(ls {pool.mount} 2>/dev/null)"
        stdchk status {pool.mount}
        stdchk policy set {pool.mount} images=1
        stdchk stage-in --all {pool.folder}/first
        stdchk ls {pool.mount}
        stdchk restart --rank 0 --ranks 1 --run one --to {pool.folder}/loaded {pool.mount}
        stdchk drain --wait {pool.mount} && stdchk safe {pool.mount}"""
    done = run_without_fuse(pool, "bash", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "app.N0.T1" in done.stdout and "1 file drained and verified" in done.stdout
    assert (pool.folder / "loaded" / "app.N0.T1").read_bytes() == image
    assert (pool.drain / "app.N0.T1").read_bytes() == image
    assert not list((pool.runtime / "stdchk").glob("pool*/pool.json"))


def test_a_mount_without_a_fuse_device_says_what_to_do_and_ends(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    record, point = pool.record, pool.folder / "second"
    point.mkdir()
    done = run_without_fuse(pool, BIN / "stdchk-mount", "--manager", record["manager_address"], "--secret-file",
                            record["secret_file"], "--ready-file", pool.folder / "ready", point)
    assert done.returncode == 1
    assert done.stderr.count("There is no /dev/fuse: load the kernel module (`modprobe fuse`)") == 1
    assert not (pool.folder / "ready").exists() and not os.path.ismount(point)


def test_a_daemon_that_does_not_start_is_named_and_all_is_taken_down(pool):
    broken = pool.folder / "bin"
    broken.mkdir()
    for name in ("stdchk-manager", "stdchk-benefactor"):
        (broken / name).symlink_to(BIN / name)
    (broken / "stdchk-mount").write_text("#!/bin/sh\necho it is too tired >&2\nexit 3\n")
    (broken / "stdchk-mount").chmod(0o755)
    pool.environment["STDCHK_BIN"] = str(broken)
    done = pool.stdchk("up", "--mount", pool.mount, "--benefactors", "1", "--memory", "64M",
                       check=False)
    pool.environment["STDCHK_BIN"] = str(BIN)
    assert done.returncode == 2
    assert "the mount ended while it started: it is too tired" in done.stderr
    assert not list((pool.runtime / "stdchk").glob("pool*/pool.json"))
    assert str(pool.runtime) not in run("ps", "-eo", "args").stdout.replace("ps -eo", "")


def test_options_come_from_the_environment_and_from_a_file(pool):
    config = pool.folder / "stdchk.toml"
    config.write_text("[up]\nbenefactors = 3\nmemory = \"64M\"\n[manager]\nlog-level = \"debug\"\n")
    pool.environment["STDCHK_MEMORY"] = "80M"
    pool.stdchk("up", "--mount", pool.mount, "--config", config)
    assert len(pool.pids("benefactor")) == 3
    total = pool.status()["pool"]["total_bytes"]
    assert 3 * 79 * MIB < total <= 3 * 80 * MIB


def test_hosts_are_reached_by_the_remote_shell_and_ended_exactly(pool):
    shell = pool.folder / "shell"
    shell.write_text(FAKE_SHELL)
    shell.chmod(0o755)
    hosts = pool.folder / "hosts"
    hosts.write_text("one address=127.0.0.1 benefactors=2 memory=96M  # the larger one\n\n"
                     "two address=127.0.0.1\n")
    pool.stdchk("up", "--mount", pool.mount, "--hosts", hosts, "--rsh", shell, "--benefactors",
                "1", "--memory", "64M", "--listen", "127.0.0.1")
    assert set(pathlib.Path(f"{shell}.hosts").read_text().split()) == {"one", "two"}
    members = pool.record["members"]
    assert sorted(m["host"] for m in members if m["role"] == "benefactor") == ["one", "one", "two"]
    data = os.urandom(8 * MIB)
    (pool.mount / "image").write_bytes(data)
    assert (pool.mount / "image").read_bytes() == data
    bystander = subprocess.Popen(["sleep", "60"])
    pool.down()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert not any(is_running(member["pid"]) for member in members)


def test_down_leaves_a_process_alone_that_got_the_pid_of_one_that_ended(pool):
    pool.up(benefactors=1)
    ended = pool.kill("benefactor")
    bystander = subprocess.Popen(["sleep", "60"])
    record = pool.record
    for member in record["members"]:
        if member["pid"] == ended:
            member["pid"] = bystander.pid
    (pathlib.Path(record["directory"]) / "pool.json").write_text(json.dumps(record))
    done = pool.down()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert f"pid {bystander.pid} had ended before" in done.stdout


def test_ls_groups_the_versions_of_a_series(pool):
    pool.up(benefactors=2)
    folder = pool.mount / "app"
    folder.mkdir()
    for step in (10, 9, 2):
        (folder / f"app.N0.T{step}").write_bytes(os.urandom(2 * MIB))
    (folder / "notes.txt").write_text("other names work too")
    text = pool.stdchk("ls", "-l", folder).stdout
    assert "app.N0 " in text and "3 versions" in text
    assert text.index("T2 ") < text.index("T9 ") < text.index("T10 ")
    by_name = {entry["path"]: entry for entry in pool.list("app")}
    image = by_name["app.N0.T9"]
    assert image["size_bytes"] == 2 * MIB and image["chunks"] == 2
    assert image["image"] == {"application": "app", "node": 0, "timestep": 9}
    assert sum(place["bytes"] for place in image["benefactors"]) == 2 * MIB
    assert "image" not in by_name["notes.txt"]
    stat = json.loads(pool.stdchk("stat", "--json", folder / "app.N0.T9").stdout)
    assert stat["size_bytes"] == 2 * MIB and stat["benefactors"][0]["pid"] in pool.pids("benefactor")


def test_ls_shows_what_each_image_brought_and_what_it_shares_with_older_images(pool):
    pool.up("--naming", "on", benefactors=1, memory="64M")
    old, new = os.urandom(3 * MIB), os.urandom(MIB)
    (pool.mount / "app.N0.T1").write_bytes(old)
    time.sleep(0.05)
    (pool.mount / "app.N0.T2").write_bytes(old[:2 * MIB] + new)
    by_name = {entry["path"]: entry for entry in pool.list()}
    assert (by_name["app.N0.T1"]["new_bytes"], by_name["app.N0.T1"]["shared_bytes"]) == (3 * MIB, 0)
    assert (by_name["app.N0.T2"]["new_bytes"], by_name["app.N0.T2"]["shared_bytes"]) == (MIB, 2 * MIB)
    text = pool.stdchk("ls", "-l", pool.mount).stdout
    assert text.splitlines()[0].split()[:4] == ["NAME", "SIZE", "NEW", "SHARED"]
    (line,) = [line for line in text.splitlines() if "app.N0.T2" in line]
    assert line.split()[1:7] == ["3.0", "MiB", "1.0", "MiB", "2.0", "MiB"]
    # stat of a single file prints the same figures.
    for name, brought, shared in (("app.N0.T1", 3 * MIB, 0), ("app.N0.T2", MIB, 2 * MIB)):
        stat = json.loads(pool.stdchk("stat", "--json", pool.mount / name).stdout)
        assert (stat["new_bytes"], stat["shared_bytes"]) == (brought, shared)
    text = pool.stdchk("stat", pool.mount / "app.N0.T2").stdout
    assert "  new      1.0 MiB; older files of the folder have 2.0 MiB, too\n" in text


def test_equal_images_are_stored_once(pool):
    pool.up(benefactors=2)
    data = os.urandom(8 * MIB)
    for step in range(4):
        (pool.mount / f"app.N0.T{step}").write_bytes(data)
    numbers = pool.status()["pool"]
    assert numbers["logical_bytes"] == 32 * MIB
    assert numbers["stored_bytes"] < 9 * MIB


def test_safe_says_no_before_the_drain_and_yes_after_it(pool):
    pool.up("--drain-rate", "4M", benefactors=1)
    (pool.mount / "app.N0.T1").write_bytes(os.urandom(12 * MIB))
    done = pool.stdchk("safe", pool.mount / "app.N0.T1", check=False)
    assert done.returncode == 1 and "not safe" in done.stdout
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    done = pool.stdchk("safe", "--json", pool.mount)
    assert json.loads(done.stdout) == {"safe": True, "files": 1, "unsafe": []}
    assert run("cmp", pool.mount / "app.N0.T1", pool.drain / "app.N0.T1").returncode == 0
    assert pool.stdchk("safe", pool.mount / "absent", check=False).returncode == 2


@pytest.mark.parametrize("drain", [True, False], ids=["drain", "no drain"])
def test_safe_of_a_folder_without_files_says_so(pool, drain):
    pool.up(benefactors=1, drain=drain)
    (pool.mount / "empty").mkdir()
    said = pool.stdchk("safe", pool.mount / "empty").stdout
    assert said.startswith("No files here: nothing can be lost.\n")
    assert ("no drain directory" in said) == (not drain)
    told = json.loads(pool.stdchk("safe", "--json", pool.mount / "empty").stdout)
    assert told == {"safe": True, "files": 0, "unsafe": []}
    (pool.mount / "empty" / "file").write_text("content")
    if not drain:
        assert pool.stdchk("safe", pool.mount / "empty", check=False).returncode == 1


def change_first_byte(path):
    with open(path, "r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))


@pytest.mark.parametrize("spoil", [os.unlink, change_first_byte, lambda path: os.truncate(path, MIB)],
                         ids=["removed", "changed", "cut"])
def test_safe_says_no_when_a_drained_file_was_spoiled_and_it_is_drained_again(pool, spoil):
    pool.up(benefactors=1)
    data = os.urandom(3 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(data)
    (pool.mount / "app.N1.T1").write_bytes(data[:MIB])
    pool.stdchk("drain", "--wait", pool.mount)
    pool.stdchk("safe", pool.mount)
    spoil(pool.drain / "app.N0.T1")
    done = pool.stdchk("safe", "--json", pool.mount, check=False)
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["files"] == 2
    (unsafe,) = answer["unsafe"]
    assert unsafe["path"] == "app.N0.T1" and unsafe["missing"]
    pool.stdchk("drain", "--wait", pool.mount)
    assert (pool.drain / "app.N0.T1").read_bytes() == data
    pool.stdchk("safe", pool.mount)
    log = pathlib.Path(pool.record["directory"]) / "manager.log"
    assert "app.N0.T1 is missing or changed in the drain directory" in log.read_text()


def test_down_drains_again_what_was_removed_from_the_drain_directory(pool):
    pool.up(benefactors=1)
    data = os.urandom(3 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(data)
    pool.stdchk("drain", "--wait", pool.mount)
    (pool.drain / "app.N0.T1").unlink()
    pool.down("--drain")
    assert (pool.drain / "app.N0.T1").read_bytes() == data


def test_pressure_loses_no_image_whose_drained_file_was_removed(pool):
    pool.up(benefactors=1, memory="64M")
    expected = write_random(pool.mount / "app", ["app.N0.T1"], 24 * MIB)
    pool.stdchk("drain", "--wait", pool.mount)
    (pool.drain / "app" / "app.N0.T1").unlink()
    for step in (2, 3, 4):  # more images than the pool has room for
        expected |= write_random(pool.mount / "app", [f"app.N0.T{step}"], 24 * MIB)
    drop_caches()
    assert all_read_back(pool.mount / "app", expected)
    pool.stdchk("drain", "--wait", pool.mount)
    assert all_read_back(pool.drain / "app", expected)


def test_an_image_that_is_gone_from_memory_and_from_the_drain_directory_is_named_and_holds_up_no_end(pool):
    pool.up(benefactors=1, memory="64M")
    for step in (1, 2, 3):  # the third image makes the pool evict the oldest
        write_random(pool.mount, [f"app.N0.T{step}"], 24 * MIB)
        pool.stdchk("drain", "--wait", pool.mount)
    assert {entry["path"]: entry["bytes_only_drained"] for entry in pool.list()}["app.N0.T1"] == 24 * MIB
    (pool.drain / "app.N0.T1").unlink()
    done = pool.stdchk("safe", pool.mount / "app.N0.T1", check=False)
    assert done.returncode == 1 and "removed or changed" in done.stdout
    done = pool.stdchk("drain", "--wait", pool.mount, check=False)
    assert done.returncode == 1 and "app.N0.T1 was removed or changed" in done.stderr
    assert pool.stdchk("safe", pool.mount / "app.N0.T3").returncode == 0
    done = pool.down("--drain")
    assert "app.N0.T1 was removed or changed" in done.stderr


def test_ls_says_of_each_image_whether_it_is_drained(pool):
    pool.up("--drain-rate", "512K", benefactors=1)
    (pool.mount / "app.N0.T1").write_bytes(os.urandom(3 * MIB))

    def drain_column():
        lines = pool.stdchk("ls", "-l", pool.mount).stdout.splitlines()
        at = lines[0].index("DRAIN")
        (image,) = [line for line in lines if line.startswith("  app.N0.T1 ")]
        return image[at:].split()[0], lines

    state, lines = drain_column()
    assert state in ("pending", "running")
    assert any("1 version " in line and "0 drained" in line for line in lines)
    assert pool.list()[0]["drain"] in ("pending", "running")
    pool.stdchk("drain", "--wait", "--timeout", 58, pool.mount)
    state, lines = drain_column()
    assert state == "drained"
    assert any("1 version " in line and "1 drained" in line for line in lines)
    assert pool.list()[0]["drain"] == "drained"


def test_safe_without_a_drain_directory_is_no(pool):
    pool.up(benefactors=1, drain=False)
    (pool.mount / "file").write_bytes(b"x")
    assert pool.stdchk("safe", pool.mount / "file", check=False).returncode == 1
    assert pool.stdchk("drain", pool.mount, check=False).returncode == 2


def test_down_while_a_program_is_inside_says_who(pool):
    pool.up(benefactors=1)
    inside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                              cwd=pool.mount)
    try:
        done = pool.down()
        assert "unmounted lazily" in done.stdout and f"pid {inside.pid}" in done.stdout
    finally:
        inside.kill()
        inside.wait()
    assert not os.path.ismount(pool.mount)


def test_statfs_tells_the_space_of_the_pool(pool):
    pool.up(benefactors=2, memory="64M", drain=False)

    def free_bytes():
        space = os.statvfs(pool.mount)
        return space.f_bavail * space.f_frsize

    space, numbers = os.statvfs(pool.mount), pool.status()["pool"]
    assert space.f_blocks * space.f_frsize == numbers["total_bytes"] > 120 * MIB
    assert space.f_namemax == 255
    empty = free_bytes()
    assert empty == numbers["free_bytes"]
    (pool.mount / "file").write_bytes(os.urandom(32 * MIB))
    # Space that the session was granted but did not use is freed at its end.
    wait_until(lambda: 32 * MIB <= empty - free_bytes() < 33 * MIB, "the space of the file")
    (pool.mount / "file").unlink()
    wait_until(lambda: free_bytes() == empty, "the space given back")
    pool.down()


def test_a_full_pool_is_enospc_at_write_and_room_comes_back(pool):
    pool.up(benefactors=2, memory="64M", drain=False)
    descriptor, data = os.open(pool.mount / "large", os.O_WRONLY | os.O_CREAT), os.urandom(MIB)
    with pytest.raises(OSError) as at_write:
        for number in range(256):  # twice the pool's size, and more than the window
            os.write(descriptor, number.to_bytes(8, "little") + data[8:])
    with pytest.raises(OSError) as at_close:  # close() repeats the error: no byte of the file is kept
        os.close(descriptor)
    assert at_write.value.errno == at_close.value.errno == errno.ENOSPC
    if (pool.mount / "large").exists():
        (pool.mount / "large").unlink()
    deadline = time.monotonic() + 30
    while True:
        try:
            (pool.mount / "small").write_bytes(os.urandom(16 * MIB))
            break
        except OSError as error:
            assert error.errno == 28 and time.monotonic() < deadline
            time.sleep(0.5)


def test_an_early_close_returns_before_the_image_is_stored(pool):
    pool.up("--close", "early", "--transport", "tcp", benefactors=2)
    other = pool.mount_by_hand("other")
    (pool.mount / "app.N0.T1").write_bytes(os.urandom(8 * MIB))  # brings the links up
    wait_until((other / "app.N0.T1").exists, "the first image")
    image, data = pool.mount / "app.N0.T2", os.urandom(24 * MIB)
    with stopped(*pool.pids("benefactor")):  # over TCP, nothing is stored without the benefactors
        began = time.monotonic()
        image.write_bytes(data)
        assert time.monotonic() - began < 2
        assert not (other / "app.N0.T2").exists()
        assert [entry["path"] for entry in pool.list()] == ["app.N0.T1"]
        assert pool.stdchk("safe", image, check=False).returncode == 2  # no such image
    wait_until((other / "app.N0.T2").exists, "the commit")
    assert (other / "app.N0.T2").read_bytes() == data
    assert image.read_bytes() == data
    assert pool.status()["pool"]["aborted"] == 0
    run("umount", other)
    pool.down()


def test_what_an_early_close_has_lost_is_told_by_the_next_open_and_in_the_status(pool):
    pool.up("--close", "early", benefactors=1, memory="64M", drain=False)
    image, data = pool.mount / "app.N0.T1", os.urandom(48 * MIB)
    image.write_bytes(data)
    wait_until(lambda: pool.list(), "the first version")
    began = time.monotonic()
    descriptor = os.open(image, os.O_WRONLY)
    os.write(descriptor, os.urandom(24 * MIB))  # fits into the window but exceeds the pool
    os.close(descriptor)
    assert time.monotonic() - began < 3  # a write learns of the missing room only after 5 s
    with pytest.raises(OSError) as raised:
        image.read_bytes()
    assert raised.value.errno == errno.ENOSPC
    assert image.read_bytes() == data
    wait_until(lambda: pool.status()["pool"]["aborted"] == 1, "the status")
    assert "1 writes ended without a commit" in pool.stdchk("status", pool.mount).stdout
    assert [entry["path"] for entry in pool.list("", "--aborted")] == ["app.N0.T1"]
    pool.down()


@pytest.mark.parametrize("size, count", [(32 * MIB, 8), (80 * MIB, 3)])  # no two files of 80 MiB fit
def test_drained_images_make_room_and_are_read_from_the_drain_directory(pool, size, count):
    pool.up(benefactors=2, memory="64M")
    images = {}
    for step in range(count):
        images[step] = os.urandom(size)
        (pool.mount / f"app.N0.T{step}").write_bytes(images[step])
        pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    for step, data in images.items():
        assert (pool.mount / f"app.N0.T{step}").read_bytes() == data


def test_a_policy_is_set_on_a_folder_and_holds_below_it(pool):
    pool.up("--policy", "copies=1", benefactors=1)
    below = pool.mount / "app" / "below"
    below.mkdir(parents=True)

    def policy(*arguments):
        return json.loads(pool.stdchk("policy", arguments[0], "--json", *arguments[1:]).stdout)

    assert policy("get", below)["chunking"] == {"value": "as the pool", "from": "default"}
    assert policy("get", below)["copies"]["from"] == "inherited"
    changed = policy("set", pool.mount / "app", "chunking=fixed", "copies=1")
    assert changed["chunking"] == {"value": "fixed", "from": "this folder"}
    assert policy("get", below)["chunking"] == {"value": "fixed", "from": "inherited"}
    # Sets the policy through an extended attribute of any folder or file below.
    (below / "file").write_bytes(b"x")
    assert os.getxattr(below / "file", "user.stdchk.policy.chunking") == b"fixed"
    os.removexattr(pool.mount / "app", "user.stdchk.policy.chunking")
    assert policy("get", below)["chunking"]["from"] == "default"
    os.setxattr(below, "user.stdchk.policy.commit", b"stored")
    assert policy("get", below)["commit"] == {"value": "stored", "from": "this folder"}
    assert "this folder" in pool.stdchk("policy", "get", below).stdout


@pytest.mark.parametrize("arguments, words", [
    (["set", "kepe=3"], ["kepe", "keep", "purge-after"]),
    (["set", "copies=none"], ["copies=none", "allowed"]),
    (["set", "commit"], ["commit", "KEY=VALUE"]),
    (["set"], ["KEY=VALUE"]),
    (["get", "keep=3"], ["get", "no KEY=VALUE"]),
    (["list"], ["list", "get, set and suggest"]),
])
def test_a_bad_policy_is_refused_in_one_sentence(module_pool, arguments, words):
    if not os.path.ismount(module_pool.mount):
        module_pool.up(benefactors=1, memory="64M", drain=False)
    done = module_pool.stdchk("policy", arguments[0], module_pool.mount, *arguments[1:], check=False)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert done.stderr.count("\n") == 1


def write_set(folder, step, ranks, size=256 << 10):
    for rank in range(ranks):
        (folder / f"app.N{rank}.T{step}").write_bytes(os.urandom(size))


def test_sets_are_kept_as_the_policy_says_and_latest_names_a_whole_one(pool):
    pool.up(benefactors=2)
    folder = pool.mount / "app"
    folder.mkdir()
    pool.stdchk("policy", "set", folder, "images=3", "keep=2")

    def sets():
        return json.loads(pool.stdchk("set", "list", "--json", folder).stdout)["sets"]

    def latest():
        return os.readlink(folder / "latest") if os.path.lexists(folder / "latest") else None

    write_set(folder, 1, 3)
    wait_until(lambda: latest() == "app.*.T1", "the link")
    pool.stdchk("set", "pin", folder / "app.*.T1")
    for step in (2, 3, 4):
        write_set(folder, step, 3)
        wait_until(lambda step=step: latest() == f"app.*.T{step}", "the link")
    write_set(folder, 5, 2)
    time.sleep(0.5)
    assert latest() == "app.*.T4"
    wait_until(lambda: [one["timestep"] for one in sets()] == [5, 4, 3, 1], "the removal of T2")
    assert [one["complete"] for one in sets()] == [False, True, True, True]
    assert [one["latest"] for one in sets()] == [False, True, False, False]
    assert sets()[3]["pinned"]
    pool.stdchk("set", "unpin", folder / "app.N0.T1")
    wait_until(lambda: [one["timestep"] for one in sets()] == [5, 4, 3], "the removal of T1")
    text = pool.stdchk("set", "list", folder).stdout
    assert "app.*.T4" in text and "latest" in text and "2/3" in text
    # In the drain directory, the link moves when the set is complete. Drained sets stay there.
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    wait_until(lambda: leads_to(pool.drain / "app" / "latest", "app.*.T4"), "the drained link")
    # A new pool on the same directory orders sets by time, not by name.
    pool.stdchk("down", pool.mount)
    pool.up("--policy", "images=3,keep=3", benefactors=1)
    wait_until(lambda: latest() == "app.*.T4", "the link of the new pool")
    assert len([one for one in sets() if one["complete"]]) <= 3


def test_every_other_set_is_drained_within_the_rate_of_all_together(pool):
    began = time.monotonic()
    pool.up("--policy", "images=2,drain-every=2", "--drain-total", "4M", benefactors=2, memory="64M")
    for step in (1, 2, 3, 4):
        write_set(pool.mount, step, 2, 2 * MIB)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    # A caller that waits also gets the newest whole set, although drain-every omits it: 12 MiB.
    assert time.monotonic() - began > 2
    assert {path.name for path in pool.drain.glob("app.*")} == {
        f"app.N{rank}.T{step}" for rank in (0, 1) for step in (1, 3, 4)}
    assert os.readlink(pool.drain / "latest") == "app.*.T4"
    assert {entry["path"]: entry["drain"] for entry in pool.list()}["app.N0.T2"] == "none"
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount / "app.N0.T2")
    assert (pool.drain / "app.N0.T2").exists() and not (pool.drain / "app.N1.T2").exists()


def test_verify_finds_what_has_changed_in_the_drain_directory(pool):
    pool.up(benefactors=2)
    folder = pool.mount / "app"
    folder.mkdir()
    write_set(folder, 1, 3)
    (folder / "app.N0.T2").write_bytes(os.urandom(5 * MIB + 17))
    (pool.mount / "notes").write_text("of the first pool")

    def verify(where=pool.drain, status=0):
        done = pool.stdchk("verify", "--json", where, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    assert "drain --wait" in verify(status=2)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    good = verify()
    assert good["files"] == 5 and good["bad"] == [] and good["unknown_bytes"] == 0
    assert good["checked_bytes"] == 3 * (256 << 10) + 5 * MIB + 17 + len("of the first pool")
    # A new pool keeps the old pool's entries, and adds the files that it drains itself.
    pool.stdchk("down", pool.mount)
    pool.up(benefactors=1)
    assert ".stdchk-manifest" not in os.listdir(folder)
    (pool.mount / "notes").write_text("of the second pool")
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert verify()["files"] == 5
    pool.stdchk("down", pool.mount)
    with open(pool.drain / "app" / "app.N0.T2", "r+b") as file:
        file.seek(4 * MIB + 100)
        byte = file.read(1)
        file.seek(4 * MIB + 100)
        file.write(bytes([byte[0] ^ 1]))
    os.truncate(pool.drain / "app" / "app.N1.T1", 1000)
    (pool.drain / "app" / "app.N2.T1").unlink()
    faults = {pathlib.Path(one["path"]).name: one["fault"] for one in verify(status=1)["bad"]}
    assert "4194304" in faults["app.N0.T2"]
    assert "1000 bytes instead of" in faults["app.N1.T1"]
    assert "cannot be opened" in faults["app.N2.T1"]
    assert len(faults) == 3


def test_restart_test_reads_the_newest_whole_set(pool):
    pool.up("--policy", "images=3", benefactors=2, drain=False)
    write_set(pool.mount, 1, 3)
    write_set(pool.mount, 2, 2)
    wait_until(lambda: os.path.lexists(pool.mount / "latest"), "a whole set")
    result = json.loads(pool.stdchk("restart-test", "--json", pool.mount).stdout)
    assert result["set"] == "app.*.T1" and result["images"] == 3 and result["bytes"] == 3 * (256 << 10)
    assert 0 < result["seconds"] < 20
    result = json.loads(pool.stdchk("restart-test", "--json", "--set", "app.*.T2", pool.mount).stdout)
    assert result["images"] == 2
    done = pool.stdchk("restart-test", "--set", "app.*.T3", pool.mount, check=False)
    assert done.returncode == 2 and "app.*.T3" in done.stderr
    for benefactor in range(2):
        pool.kill("benefactor", benefactor)
    done = pool.stdchk("restart-test", "--set", "app.*.T2", pool.mount, check=False)
    assert done.returncode == 2 and "cannot be read" in done.stderr


def test_a_set_that_is_not_there_cannot_be_pinned(pool):
    pool.up(benefactors=1, drain=False)
    done = pool.stdchk("set", "pin", pool.mount / "app.*.T1", check=False)
    assert done.returncode == 2 and "there is no set app.*.T1" in done.stderr
    done = pool.stdchk("set", "pin", pool.mount / "app", check=False)
    assert done.returncode == 2 and "A.*.Tj" in done.stderr
    write_set(pool.mount, 1, 1)
    assert "not known" in pool.stdchk("set", "list", pool.mount).stdout


def test_the_policy_of_a_pool_can_come_from_a_file(pool):
    file = pool.folder / "stdchk.toml"
    file.write_text('[up]\npolicy = "images=2,keep=1"\nmemory = "64M"\n')
    pool.stdchk("up", "--config", file, "--mount", pool.mount)
    got = json.loads(pool.stdchk("policy", "get", "--json", pool.mount).stdout)
    assert (got["images"]["value"], got["keep"]["value"]) == ("2", "1")
    pool.down()
    file.write_text('[up]\npolicy = "images=many"\n')
    done = pool.stdchk("up", "--config", file, "--mount", pool.mount, check=False)
    assert done.returncode == 2 and "images=many is not valid" in done.stderr


def test_top_shows_how_full_all_is_and_how_fast_it_changes(pool):
    pool.up("--drain-rate", "1M", "--copies", "2", benefactors=2, memory="64M")
    (pool.mount / "app.N0.T1").write_bytes(os.urandom(16 * MIB))
    wait_until(lambda: pool.status()["pool"]["debt_chunks"] == 0, "all copies")
    lines = pool.stdchk("top", "--count", "1", "--interval", "2", pool.mount).stdout.splitlines()
    assert str(pool.mount) in lines[0] and "requests/s" in lines[0]
    # 1 of 128 MiB belongs to the metadata log.
    assert "###" in lines[1] and "of 127.0 MiB" in lines[1] and "/s" in lines[1]
    assert [line.split()[0] for line in lines[2:7]] == ["written", "read", "equal", "copies", "parity"]
    assert lines[2].endswith("; 16.0 MiB and 16.0 MiB in all")
    assert lines[3].endswith("0 B/s drained; 0 B in all")
    assert "100 %   2 is the pool's; 0 B lacking for 0 chunks" in lines[5]
    assert all("%" in line and "of the fastest" in line for line in lines[2:4])
    assert "1 files" in lines[7] and "drained" in lines[7]
    assert [line.split()[0] for line in lines[8:]] == ["b1", "b2"]
    assert all("of 63.5 MiB" in line for line in lines[8:])


class Terminal:
    """A program on its own terminal; the test types its keys and reads its screen."""

    def __init__(self, *command, environment):
        self.keys, there = pty.openpty()
        self.before = termios.tcgetattr(there)
        self.there = there
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=there, stdout=there, stderr=there, env=environment,
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
        self.shown = b""

    def read(self):
        while select.select([self.keys], [], [], 0)[0]:
            self.shown += os.read(self.keys, 65536)
        return self.shown

    def end(self):
        """Returns the exit status. The terminal's settings must be restored."""
        wait_until(lambda: self.read() is not None and self.process.poll() is not None, "the end")
        self.read()
        after = termios.tcgetattr(self.there)
        os.close(self.keys)
        os.close(self.there)
        assert after == self.before
        return self.process.returncode


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_top_on_a_terminal_goes_on_until_a_key_ends_it(pool, key):
    pool.up(benefactors=1, drain=False)
    terminal = Terminal(BIN / "stdchk", "top", pool.mount, environment=pool.environment)
    wait_until(lambda: terminal.read().count(b"\x1b[H\x1b[2J") >= 2, "two pictures")
    written = os.urandom(8 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(written)
    wait_until(lambda: re.search(rb"written  \[#{30}\] 100 % of the fastest   [1-9][0-9.]* [KM]iB/s committed", terminal.read()), "the bytes")
    assert termios.tcgetattr(terminal.there) != terminal.before
    os.write(terminal.keys, key)
    began = time.monotonic()
    assert terminal.end() == 0
    assert time.monotonic() - began < 5
    # The program used the alternate screen, and restored the screen and the cursor.
    assert terminal.shown.startswith(b"\x1b[?1049h\x1b[?25l") and terminal.shown.endswith(b"\x1b[?25h\x1b[?1049l")


def test_advise_works_out_an_interval_and_draws_the_table(pool):
    plot = pool.folder / "plot.svg"
    words = ["advise", "--json", "--nodes", "64", "--memory", "16G", "--node-rate", "1G/s",
             "--pfs-rate", "4G/s", "--table", "64", "--plot", plot]
    often = json.loads(pool.stdchk(*words, "--mtbf", "30d").stdout)
    rarely = json.loads(pool.stdchk(*words, "--mtbf", "1825d").stdout)
    assert often["job_mtbf_s"] == 30 * 86400 / 64
    assert often["interval_s"] < rarely["interval_s"] < rarely["job_mtbf_s"]
    assert 1 < often["slowdown"] < often["without_pool"]["slowdown"]
    assert often["failures_until_drained"] >= 1 and often["copies"] >= 2
    assert {row["nodes"] for row in often["replicas"]} == {8, 16, 32, 64}
    assert plot.read_text().count("<polyline") == 6
    shown = pool.stdchk("advise", "--table", "8").stdout
    assert "REPLICAS" in shown and "time without failures" in shown and "stripe width" in shown
    done = pool.stdchk("advise", "--mtbf", "5y", check=False)
    assert done.returncode == 2 and "5y" in done.stderr


def test_advise_says_how_many_copies_survive_what_may_fail(pool):
    """64 nodes of 16 GiB drain in 256 s at 4 GiB/s. With less than 0.1 % probability more nodes fail
    meanwhile than the advice says."""
    words = ["advise", "--nodes", "64", "--memory", "16G", "--node-rate", "1G/s", "--pfs-rate", "4G/s",
             "--table", "64"]
    for mtbf, hours, copies in (("1825d", 1825 * 24, 1), ("30d", 30 * 24, 2), ("1d", 24, 3), ("6h", 6, None)):
        mean = 256 * 64 / (hours * 3600)
        failures, likely = 0, math.exp(-mean)
        while likely < 0.999:
            failures += 1
            likely += math.exp(-mean) * mean ** failures / math.factorial(failures)
        shown = pool.stdchk(*words, "--mtbf", mtbf).stdout
        said = re.search(r"^copies +(.*): until a set is drained up to (\d+) nodes may fail", shown, re.MULTILINE)
        assert said.groups() == (str(copies or "more than 3"), str(failures)), (mtbf, shown)
        # The advice must match its own table: the fewest copies that are enough.
        (row,) = re.findall(r"^ +64 .*?   (0 0 0) +\d+ \d+ (\d+) +\d+ \d+ (\d+)$", shown, re.MULTILINE)
        enough = [number for number, allowed in enumerate((0, int(row[1]), int(row[2])), 1) if allowed >= failures]
        assert (enough or [None])[0] == copies


def test_advise_adds_up_the_time_of_a_run(pool):
    words = ["advise", "--json", "--nodes", "16", "--table", "8", "--compute", "10h", "--communicate", "2h",
             "--alpha", "1.25", "--coordination", "4s", "--contention", "6s"]
    told = json.loads(pool.stdchk(*words).stdout)
    assert told["alpha"] == 1.25 and told["checkpoints"] >= 1
    assert told["checkpoint_s"] == pytest.approx(4 + told["write_s"] + 6)
    pauses = told["checkpoints"] * told["checkpoint_s"]
    assert told["total_s"] == pytest.approx(36000 + 1.25 * 7200 + pauses)
    assert told["expected_s"] > told["total_s"]
    assert told["slowdown"] == pytest.approx(told["expected_s"] / 43200)
    for wrong in ("0.9", "fast", "1.1x", "nan"):
        done = pool.stdchk("advise", "--alpha", wrong, check=False)
        assert done.returncode == 2 and wrong in done.stderr


def test_advise_says_how_wide_a_stripe_should_be(pool):
    words = ["advise", "--nodes", "16", "--lend", "8G", "--table", "8", "--node-rate", "1G/s",
             "--benefactor-rate", "256M/s"]
    told = json.loads(pool.stdchk(*words, "--json").stdout)
    assert told["stripe_width"] == 4 and told["benefactor_nodes_for_rate"] == 64
    assert "receive the 1.0 GiB/s of one node" in told["stripe_width_reason"]
    assert told["stripe_width_reason"] in pool.stdchk(*words).stdout
    given = json.loads(pool.stdchk(*words, "--json", "--stripe-width", "2").stdout)
    assert given["stripe_width"] == 2 and given["write_s"] > told["write_s"]


def test_advise_measures_a_mount_and_a_target_and_leaves_nothing(pool, tmp_path):
    pool.up(benefactors=2)
    words = ["advise", "--json", "--nodes", "16", "--table", "8", "--measure-size", "32M"]
    told = json.loads(pool.stdchk(*words, "--mount", pool.mount, "--target", tmp_path).stdout)
    mount, target = told["measured"]
    assert (mount["directory"], target["directory"]) == (str(pool.mount), str(tmp_path))
    assert mount["bytes"] == target["bytes"] == 32 * MIB
    assert (told["node_rate"], told["pfs_rate"]) == (mount["rate"], target["rate"])
    assert min(mount["rate"], target["rate"]) > MIB
    # A slower node waits longer: the figures are the measured ones.
    assert told["write_s"] == pytest.approx(told["copies"] * 32 * 1024 * MIB / mount["rate"])
    assert told["drain_s"] == pytest.approx(16 * 32 * 1024 * MIB / target["rate"])
    shown = pool.stdchk("advise", "--table", "8", "--measure-size", "4M", "--mount", pool.mount).stdout
    assert re.search(r"measured +.*/s with 4.0 MiB in " + str(pool.mount), shown)
    assert os.listdir(pool.mount) == [] and os.listdir(tmp_path) == []


def test_advise_measures_nothing_that_it_should_not(pool, tmp_path):
    pool.up(benefactors=2)
    for words, reason in ((["--mount", tmp_path], "is in no mount"),
                          (["--mount", pool.mount, "--measure-size", "64G"], "--measure-size"),
                          (["--mount", pool.mount, "--target", tmp_path / "missing",
                            "--measure-size", "4M"], "missing")):
        done = pool.stdchk("advise", "--table", "8", *words, check=False)
        assert done.returncode == 2 and reason in done.stderr
    assert os.listdir(pool.mount) == [] and os.listdir(tmp_path) == []


def test_advise_measures_no_longer_than_it_may(pool, tmp_path):
    size = shutil.disk_usage(tmp_path).free // 4
    if size < 8 << 30:
        pytest.skip("too little disk space to be sure that it takes longer than a second")
    began = time.monotonic()
    told = json.loads(pool.stdchk("advise", "--json", "--nodes", "8", "--table", "8", "--measure-size", size,
                                  "--measure-time", "1", "--target", tmp_path).stdout)
    assert 4 * MIB <= told["measured"][0]["bytes"] < size
    assert time.monotonic() - began < 20
    assert os.listdir(tmp_path) == []


def test_advise_clears_up_when_a_measurement_fails_or_is_ended(pool, tmp_path):
    def small_files_only():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MIB, 3 * MIB))

    words = [BIN / "stdchk", "advise", "--table", "8", "--target", tmp_path]
    done = run(*words, check=False, preexec_fn=small_files_only, restore_signals=False)
    assert done.returncode == 2 and "cannot write" in done.stderr and "File too large" in done.stderr
    assert os.listdir(tmp_path) == []
    pool.up(benefactors=2, memory="256M")
    words = [BIN / "stdchk", "advise", "--table", "8", "--measure-size", "128M", "--mount", pool.mount]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_until(lambda: os.listdir(pool.mount), "the folder of a measurement")
    running.terminate()
    assert "ended by a signal" in running.communicate(timeout=20)[1] and running.returncode == 2
    assert os.listdir(pool.mount) == []


def test_bench_measures_in_turns_and_leaves_nothing(pool, tmp_path):
    pool.up(benefactors=2)
    # An image with an odd length ends in a partial block.
    flags = ["--ranks", "2", "--size", "5000001", "--block", "1M", "--rounds", "2"]
    result = json.loads(pool.stdchk("bench", *flags, "--json", pool.mount, tmp_path).stdout)
    assert (result["size"], result["ranks"]) == (5000001, 2)
    assert [place["directory"] for place in result["measured"]] == [str(pool.mount), str(tmp_path)]
    for place in result["measured"]:
        assert all(len(place["gb_per_s"][what]) == 2 for what in ("OT", "AT", "read"))
        assert all(ot >= at > 0 for ot, at in zip(place["gb_per_s"]["OT"], place["gb_per_s"]["AT"]))
    shown = pool.stdchk("bench", *flags, pool.mount, tmp_path).stdout
    assert "OT" in shown and f"times {tmp_path}" in shown
    assert os.listdir(pool.mount) == [] and os.listdir(tmp_path) == []
    done = pool.stdchk("bench", "--size", "64G", pool.mount, check=False)
    assert done.returncode == 2 and "--size" in done.stderr
    # The benchmark also removes its files after a signal.
    running = subprocess.Popen([BIN / "stdchk", "bench", "--rounds", "1000", "--size", "16M", pool.mount],
                               stderr=subprocess.PIPE, text=True)
    wait_until(lambda: os.listdir(pool.mount), "the folder of a run")
    running.terminate()
    assert "ended by a signal" in running.communicate(timeout=20)[1] and running.returncode == 2
    assert os.listdir(pool.mount) == []


def test_doctor_and_version(pool):
    findings = json.loads(pool.stdchk("doctor", "--json", check=False).stdout)
    states = {finding["what"]: finding["state"] for finding in findings}
    assert states["FUSE device"] == "good"
    assert states["transport tcp"] == "good"
    (provider,) = [finding["figures"]["provider"] for finding in findings if finding["what"] == "transport tcp"]
    assert re.fullmatch(r"OpenSSL 3\.\d+\.\d+", provider)
    assert states["transport auto"] == "good"
    assert states["pool"] == "note"  # no link to measure
    assert pool.stdchk("doctor", "--pool", pool.folder, check=False).returncode == 2
    assert run(BIN / "stdchk", "version").stdout.startswith("stdchk ")
    assert run(BIN / "stdchk", "--help").stdout.startswith("Usage: stdchk")


def benefactors_examined(pool):
    findings = json.loads(pool.stdchk("doctor", "--json", pool.mount, check=False).stdout)
    return [finding for finding in findings if finding["what"].startswith("benefactor ")]


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_doctor_measures_writes_to_every_benefactor_and_leaves_nothing(pool, transport):
    pool.up("--transport", transport, benefactors=2, memory="64M")
    free_bytes = [one["free_bytes"] for one in pool.status()["pool"]["benefactors"]]
    found = benefactors_examined(pool)
    assert [finding["state"] for finding in found] == ["good", "good"]
    for figures in (finding["figures"] for finding in found):
        used = [rail["transport"] for rail in figures["rails"] if rail["used"]]
        assert used == ["shm" if transport == "auto" else "tcp"]
        assert figures["write_bytes_per_s"] > 1e6
        assert 0 < figures["write_4k_us_median"] <= figures["write_4k_us_p99"]
    assert [one["free_bytes"] for one in pool.status()["pool"]["benefactors"]] == free_bytes
    assert os.listdir(pool.mount) == []


def test_doctor_names_a_benefactor_that_does_not_answer(pool):
    pool.up(benefactors=2, memory="64M")
    with stopped(pool.pids("benefactor")[1]):
        good, bad = sorted(benefactors_examined(pool), key=lambda finding: finding["state"] == "bad")
    assert (good["state"], bad["state"]) == ("good", "bad")
    assert "could not be measured" in bad["found"]


@pytest.mark.skipif(not (BIN / "heat").exists(), reason="examples/heat was built without MPI")
def test_a_small_demo_runs_to_its_end():
    # A demo that takes too long gets SIGTERM, so that it takes its pool down.
    done = run("timeout", 240, ROOT / "scripts" / "demo", "--cells", "48", seconds=280,
               env=dict(os.environ, DEMO_NO_BUILD="1"))
    assert "the same as undisturbed" in done.stdout
    assert "equal to their drained copies" in done.stdout
