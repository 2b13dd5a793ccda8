"""Tests hosts that are reached by ssh: a server of the test on the loopback device, with its own keys."""

import getpass
import os
import pathlib
import shutil
import socket
import subprocess

import pytest
from conftest import drop_caches
from processes import children_of, is_running, run, wait_until

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="not installed: openssh")
MIB = 1 << 20


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def make_key(path):
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
    return path


class Server:
    """An sshd that accepts the key `good`."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        host_key, good = make_key(folder / "host"), make_key(folder / "good")
        make_key(folder / "other")
        shutil.copy(f"{good}.pub", folder / "authorized_keys")
        public = pathlib.Path(f"{host_key}.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")
        (folder / "config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nPermitRootLogin yes\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n")
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd needs this directory
        with open(folder / "sshd.log", "wb") as log:
            self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "config"], stdin=subprocess.DEVNULL,
                                            stderr=log)
        wait_until(lambda: "listening" in self.log() or self.process.poll() is not None, "sshd")
        assert self.process.poll() is None, self.log()

    def log(self):
        return (self.folder / "sshd.log").read_text()

    def shell(self, key):
        """A value for --rsh."""
        return (f"ssh -F none -p {self.port} -i {self.folder}/{key} -o IdentitiesOnly=yes -o BatchMode=yes "
                f"-o UserKnownHostsFile={self.folder}/known_hosts")

    def end(self):
        print(self.log())
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture
def server(pool):
    folder = pool.folder / "ssh"
    folder.mkdir(mode=0o700)
    one = Server(folder)
    yield one
    one.end()


def up(pool, server, key, check=True):
    hosts = pool.folder / "hosts"
    hosts.write_text(f"{getpass.getuser()}@127.0.0.1 benefactors=2\n")
    return pool.stdchk("up", "--mount", pool.mount, "--drain", pool.drain, "--hosts", hosts, "--memory", "64M", "--rsh",
                       server.shell(key), "--listen", "127.0.0.1", check=check)


def test_a_pool_on_a_host_behind_ssh_outlives_the_session_and_is_ended_through_it(pool, server):
    up(pool, server, "good")
    assert "Accepted publickey" in server.log()
    members = pool.record["members"]
    lent = [member["pid"] for member in members if member["role"] == "benefactor"]
    assert len(lent) == 2 and all(member["host"] for member in members if member["role"] == "benefactor")
    wait_until(lambda: not children_of(server.process.pid), "the end of the session")
    assert all(is_running(pid) for pid in lent)
    data = os.urandom(20 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(data)
    other = pool.mount_by_hand("other")
    drop_caches()
    assert (other / "app.N0.T1").read_bytes() == data
    run("umount", other)
    pool.down("--drain")
    assert (pool.drain / "app.N0.T1").read_bytes() == data
    assert not any(is_running(member["pid"]) for member in members)


def test_a_key_that_is_refused_is_a_sentence_that_says_what_to_try(pool, server):
    done = up(pool, server, "other", check=False)
    assert done.returncode == 2
    assert "Permission denied" in done.stderr and "without a question" in done.stderr
    assert f"{server.shell('other')} {getpass.getuser()}@127.0.0.1 true" in done.stderr
    assert not list((pool.runtime / "stdchk").glob("pool*/pool.json"))
    assert not os.path.ismount(pool.mount)
