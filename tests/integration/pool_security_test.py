"""Who is no member of a pool cannot use it: wrong and missing secrets, strangers on its sockets."""

import os
import pathlib
import socket
import time

import pytest
from processes import BIN, is_running, run

MIB = 1 << 20


def address_of(pool):
    host, _, port = pool.record["manager_address"].removeprefix("tcp:").rpartition(":")
    return host, int(port)


def benefactor_addresses(pool):
    found = []
    for path in pathlib.Path(pool.record["directory"]).glob("benefactor.*.ready"):
        text = path.read_text()
        found += [part.split('"')[0] for part in text.split('tcp:')[1:]]
    return [(host, int(port)) for host, _, port in (one.rpartition(":") for one in found)]


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_secret(path, text, mode=0o600):
    path.touch(0o600)
    path.write_text(text)
    path.chmod(mode)
    return path


def mount_that_fails(pool, secret_file):
    point = pool.folder / "refused"
    point.mkdir(exist_ok=True)
    began = time.monotonic()
    done = run(BIN / "stdchk-mount", "--manager", pool.record["manager_address"], "--secret-file",
               secret_file, "--ready-file", pool.folder / "refused.ready", point, check=False,
               env=pool.environment, seconds=20)
    assert done.returncode == 1
    assert not os.path.ismount(point)
    return done.stderr, time.monotonic() - began


def test_another_secret_is_refused_at_once_with_the_remedy(pool):
    pool.up(benefactors=1, drain=False)
    wrong = write_secret(pool.folder / "wrong", "ab" * 16 + "\n")
    said, took = mount_that_fails(pool, wrong)
    assert "the secrets differ" in said and "--secret-file" in said
    assert took < 5
    done = run(BIN / "stdchk-benefactor", "--manager", pool.record["manager_address"],
               "--secret-file", wrong, "--ready-file", pool.folder / "b.ready", "--memory", "64M",
               check=False, env=pool.environment, seconds=20)
    assert done.returncode == 1
    assert "the secrets differ" in done.stderr
    assert len(pool.status()["pool"]["benefactors"]) == 1
    (pool.mount / "still").write_bytes(b"works")


@pytest.mark.parametrize("text, mode, words", [
    ("ab" * 16, 0o644, ["mode 0644", "chmod 600"]),
    ("ab" * 15, 0o600, ["32 hexadecimal digits"]),
    (None, 0, ["cannot be read", "No such file", "--secret-file"]),
])
def test_a_bad_secret_file_is_one_sentence_with_the_remedy(pool, text, mode, words):
    path = pool.folder / "secret"
    if text:
        write_secret(path, text, mode)
    for program, arguments in (
            ("stdchk-manager", ["--state", pool.folder / "s", "--address-file", pool.folder / "a"]),
            ("stdchk-benefactor", ["--manager", "tcp:127.0.0.1:1", "--ready-file",
                                   pool.folder / "r", "--memory", "64M"]),
            ("stdchk-mount", ["--manager", "tcp:127.0.0.1:1", "--ready-file",
                              pool.folder / "r", pool.folder])):
        done = run(BIN / program, *arguments, "--secret-file", path, check=False, seconds=20)
        assert done.returncode == 1
        assert all(word in done.stderr for word in [str(path), *words]), done.stderr


def test_the_secret_is_in_one_file_and_on_no_command_line(pool):
    pool.up(benefactors=2, drain=False)
    directory = pathlib.Path(pool.record["directory"])
    secret = pathlib.Path(pool.record["secret_file"]).read_text().strip()
    assert len(secret) == 32
    for member in pool.record["members"]:
        for name in ("cmdline", "environ"):
            told = pathlib.Path(f"/proc/{member['pid']}/{name}").read_bytes()
            assert secret.encode() not in told
    holders = [path for path in directory.rglob("*")
               if path.is_file() and secret.encode() in path.read_bytes()]
    assert holders == [directory / "secret"]


def test_strangers_on_the_sockets_change_nothing(pool):
    pool.up(benefactors=2, drain=False)
    (pool.mount / "before").write_bytes(os.urandom(3 * MIB))
    before = (pool.mount / "before").read_bytes()
    targets = [address_of(pool), *benefactor_addresses(pool)]
    assert len(targets) == 3
    held = []
    for target in targets:
        for said in (b"", b"x", os.urandom(7), os.urandom(5000), bytes(64)):
            for stays in (False, True):
                stranger = socket.create_connection(target, 5)
                stranger.sendall(said)
                if stays:
                    held.append(stranger)
                else:
                    stranger.close()
    # With silent ones still there, members come and work as before.
    second = pool.mount_by_hand("second")
    (second / "after").write_bytes(before)
    assert (pool.mount / "after").read_bytes() == before
    for stranger in held:
        stranger.close()
    daemons = [m["pid"] for m in pool.record["members"] if m["role"] != "mount"]
    before = {pid: processor_seconds(pid) for pid in daemons}
    time.sleep(1)
    assert max(processor_seconds(pid) - before[pid] for pid in daemons) < 0.5, "one spins"
    assert all(is_running(member["pid"]) for member in pool.record["members"])
    assert pool.status()["pool"]["benefactors"]


def test_hosts_get_the_secret_only_in_directories_of_this_user(pool):
    """What another user left in the way on a host is not trusted with the secret."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    shell = pool.folder / "remote-shell"
    shell.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    shell.chmod(0o700)
    hosts = pool.folder / "hosts"
    hosts.write_text("one address=127.0.0.1 benefactors=1 memory=96M\n")
    top = pathlib.Path(f"/tmp/stdchk-{os.geteuid()}-hosts")
    aside = pool.folder / "aside"
    if top.exists():
        top.rename(aside)
    try:
        top.mkdir()
        os.chown(top, 1, 1)
        done = pool.stdchk("up", "--mount", pool.mount, "--hosts", hosts, "--rsh", shell,
                           check=False)
        assert done.returncode == 2
        assert "must be a directory of your own" in done.stderr
        assert not list(top.rglob("secret"))
    finally:
        run("rm", "-rf", top)
        if aside.exists():
            aside.rename(top)
