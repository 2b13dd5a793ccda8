"""Tests that only members can use a pool: wrong and missing secrets, strangers on its sockets."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import drop_caches, restart_manager
from processes import BIN, is_running, run, wait_until

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
    wrong = write_secret(pool.folder / "wrong", os.urandom(16).hex() + "\n")
    said, took = mount_that_fails(pool, wrong)
    assert "--secret-file" in said and "`stdchk up` made for this pool" in said
    assert took < 5
    done = run(BIN / "stdchk-benefactor", "--manager", pool.record["manager_address"],
               "--secret-file", wrong, "--ready-file", pool.folder / "b.ready", "--memory", "64M",
               check=False, env=pool.environment, seconds=20)
    assert done.returncode == 1
    assert "`stdchk up` made for this pool" in done.stderr
    assert len(pool.status()["pool"]["benefactors"]) == 1
    (pool.mount / "still").write_bytes(b"works")


@pytest.mark.parametrize("text, mode, words", [
    ("ab" * 16, 0o644, ["mode 0644", "chmod 600"]),
    ("ab" * 15, 0o600, ["32 hexadecimal digits"]),
    ("ab" * 16, 0o600, ["random digits"]),
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
    keys = {path.name: path.read_text().split() for path in directory.glob("*.member")}
    assert {name: key[1] for name, key in keys.items()} == {
        "benefactor.0.member": "benefactor", "benefactor.1.member": "benefactor", "mount.member": "client"}
    assert len({key[3] for key in keys.values()}) == 3
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in directory.glob("*.member"))
    for member in pool.record["members"]:
        words = pathlib.Path(f"/proc/{member['pid']}/cmdline").read_bytes().split(b"\0")
        named = pathlib.Path(words[words.index(b"--secret-file") + 1].decode()).name
        assert named == "secret" if member["role"] == "manager" else named.startswith(member["role"])
        for name in ("cmdline", "environ"):
            told = pathlib.Path(f"/proc/{member['pid']}/{name}").read_bytes()
            assert not any(key.encode() in told for key in [secret, *(key[3] for key in keys.values())])
    holders = [path for path in directory.rglob("*")
               if path.is_file() and secret.encode() in path.read_bytes()]
    assert holders == [directory / "secret"]


def member_key(pool, name, role):
    done = pool.stdchk("member-key", "--role", role, pool.mount)
    assert done.stdout.split()[:2] == ["stdchk-member", role]
    return write_secret(pool.folder / name, done.stdout)


def test_members_started_by_hand_have_keys_of_their_own(pool):
    pool.up(benefactors=1, drain=False)
    manager = pool.record["manager_address"]
    keys = {role: member_key(pool, role, role) for role in ("client", "benefactor")}
    pool.start_by_hand("stdchk-benefactor", "lender", manager, keys["benefactor"], "--memory", "64M")
    assert len(pool.status()["pool"]["benefactors"]) == 2
    point = pool.mount_of(manager, keys["client"], "user")
    content = os.urandom(5 * MIB)
    (point / "f").write_bytes(content)
    assert (pool.mount / "f").read_bytes() == content
    # Neither key opens another role, or an action that needs the root secret.
    said, _ = mount_that_fails(pool, keys["benefactor"])
    assert "is for a benefactor" in said and "member-key --role client" in said
    done = run(BIN / "stdchk-benefactor", "--manager", manager, "--secret-file", keys["client"],
               "--ready-file", pool.folder / "no", "--memory", "64M", check=False, seconds=20)
    assert done.returncode == 1 and "is for a client" in done.stderr
    done = run(BIN / "stdchk-manager", "--state", pool.folder / "no", "--address-file", pool.folder / "no.address",
               "--secret-file", keys["client"], check=False, seconds=20)
    assert done.returncode == 1 and "needs the pool's secret" in done.stderr
    done = run(BIN / "stdchk-benefactor", "--manager", manager, "--secret-file", member_key(pool, "node", "node"),
               "--ready-file", pool.folder / "no", "--memory", "64M", check=False, seconds=20)
    assert done.returncode == 1 and "is for a node" in done.stderr
    done = pool.stdchk("member-key", "--secret-file", keys["client"], check=False)
    assert done.returncode == 2 and "needs the pool's secret" in done.stderr


def test_a_restarted_manager_s_members_get_on_with_new_tickets(pool):
    pool.up(benefactors=2, drain=False)
    content = os.urandom(3 * MIB)
    (pool.mount / "before").write_bytes(content)
    # A separate process has the file open: a forked child would close the file before exec, and so commit it.
    script = "import sys; file = open(sys.argv[1], 'wb'); half = sys.stdin.buffer.read(1 << 20); file.write(half); " \
             "file.flush(); print('half', flush=True); file.write(sys.stdin.buffer.read()); file.close()"
    writer = subprocess.Popen([sys.executable, "-c", script, pool.mount / "during"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    writer.stdin.write(content[:MIB])
    writer.stdin.flush()
    assert writer.stdout.readline() == b"half\n"
    pool.kill("manager")
    restart_manager(pool)
    writer.communicate(content[MIB:], timeout=60)
    assert writer.returncode == 0
    assert (pool.mount / "during").read_bytes() == content
    (pool.mount / "after").write_bytes(content)
    assert (pool.mount / "before").read_bytes() == content


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
    # Members join and work as before, while silent strangers stay connected.
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


def test_another_user_at_a_shared_memory_socket_is_refused(pool):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    pool.up(benefactors=1, drain=False)
    ready = "".join(path.read_text() for path in pathlib.Path(pool.record["directory"]).glob("*.ready"))
    names = set(re.findall(r"shm:([\w.:-]+)", ready))
    assert names
    visit = textwrap.dedent("""
        import os, socket, sys
        user, name, said = int(sys.argv[1]), sys.argv[2], os.urandom(4096)
        os.setresuid(user, user, user)
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(20)
        one.connect("\\0" + name)
        try:
            one.send(said)
            print(len(one.recv(4096)))
        except ConnectionError:
            print(0)
        """)
    for name in names:
        # The pool's user is greeted; nothing is said to another one.
        assert run(sys.executable, "-c", visit, "0", name).stdout.strip() != "0"
        assert run(sys.executable, "-c", visit, "65534", name).stdout.strip() == "0"
    (pool.mount / "after").write_bytes(bytes(MIB))
    assert (pool.mount / "after").read_bytes() == bytes(MIB)


def test_hosts_get_the_secret_only_in_directories_of_this_user(pool):
    """A host gets no secret in a directory of another user."""
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


def test_a_trusted_network_is_said_and_images_come_back(pool):
    pool.up("--transport", "tcp", "--trusted-network", benefactors=2, drain=False)
    content = os.urandom(9 * MIB + 12345)
    (pool.mount / "image").write_bytes(content)
    drop_caches()
    assert (pool.mount / "image").read_bytes() == content
    assert pool.status()["trusted_network"]
    assert "trusted" in pool.stdchk("status", pool.mount).stdout
    for member in pool.record["members"]:
        told = pathlib.Path(f"/proc/{member['pid']}/cmdline").read_bytes()
        assert (b"--trusted-network" in told) == (member["role"] == "benefactor")


def status_of(pid):
    """The lines of /proc/PID/status: name to value."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return dict(line.split(":\t", 1) for line in lines)


def test_the_daemons_of_a_pool_are_confined(pool, tmp_path):
    pool.up("--safe-file", tmp_path / "safe", "--policy", "images=2", benefactors=1)
    needed = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12, "CAP_SYS_MODULE": 16}
    ready = pathlib.Path(pool.record["directory"]) / "mount.ready"
    serving = int(ready.read_text().split()[0])  # not the guard, which starts it again
    pids = {role: pool.pids(role)[0] for role in ("manager", "benefactor", "recorder")} | {"mount": serving}
    # The recorder starts after `up` has ended. Its confinement precedes its first request.
    for rank in range(2):
        (pool.mount / f"app.N{rank}.T1").write_bytes(b"image" * 1000)
    wait_until((tmp_path / "safe").exists, "the safe file")
    for role, pid in pids.items():
        status = status_of(pid)
        if role == "mount" and os.geteuid() != 0:
            continue  # fusermount3 unmounts it, by its set-user-ID bit
        assert status["NoNewPrivs"] == "1", role
        assert status["Seccomp"] in "02", role  # 0: a program with a sanitizer
        held = {name for name, bit in needed.items() if int(status["CapEff"], 16) >> bit & 1}
        assert held <= ({"CAP_SYS_ADMIN"} if role == "mount" else set()), role
        # libfabric parses messages before any proof, so only `--transport ofi:verbs` loads it.
        assert "libfabric" not in pathlib.Path(f"/proc/{pid}/maps").read_text(), role
    # The mount that is confined unmounts itself.
    run("kill", str(serving))
    wait_until(lambda: not os.path.ismount(pool.mount), "the end of the mount")


def test_the_daemons_of_a_pool_keep_their_rights_where_its_environment_says_so(pool, tmp_path):
    """STDCHK_UNCONFINED is the option --unconfined of each daemon, also of the recorder, which `stdchk up` starts."""
    pool.environment["STDCHK_UNCONFINED"] = "on"
    pool.up("--safe-file", tmp_path / "safe", "--policy", "images=1", benefactors=1)
    (pool.mount / "app.N0.T1").write_bytes(b"image")
    wait_until((tmp_path / "safe").exists, "the safe file")
    for role in ("manager", "benefactor", "recorder"):
        own, status = status_of("self"), status_of(pool.pids(role)[0])
        assert all(status[name] == own[name] for name in ("NoNewPrivs", "Seccomp", "CapEff")), role
