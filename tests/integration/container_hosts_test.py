"""Jobs in containers on several hosts, which are network namespaces with a link each: cut links, killed hosts."""

import contextlib
import os
import signal
import uuid

import pytest
from boxes import Base, Job, Pool, why_not
from networks import Namespace
from processes import BIN, run, wait_until

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
HOSTS = 4


class Cluster:
    """Hosts behind a switch. The pool and `stdchk run` are at the switch, and reach all hosts by it. With `mounts`,
    hosts also have separate mounts."""

    def __init__(self, folder, mounts=False):
        self.mounts = mounts
        self.switch = Namespace()
        self.switch.run("ip", "link", "add", "name", "switch", "type", "bridge")
        self.switch.run("ip", "address", "add", "10.66.0.254/24", "dev", "switch")
        self.switch.run("ip", "link", "set", "switch", "up")
        self.hosts = [self._add(number) for number in range(HOSTS)]
        self.file = folder / "hosts"
        self.file.write_text("".join(f"h{number} address=10.66.0.{number + 1}\n" for number in range(HOSTS)))
        self.shell = folder / "remote-shell"
        hosts = "\n".join(f'h{number}) exec {" ".join(host.prefix)} sh -c "$2";;' for number, host in enumerate(self.hosts))
        self.shell.write_text(f"#!/bin/sh\ncase $1 in\n{hosts}\nesac\n")
        self.shell.chmod(0o755)

    def _add(self, number):
        host = Namespace(self.mounts)
        self.switch.run("ip", "link", "add", "name", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns",
                        host.holder.pid)
        self.switch.run("ip", "link", "set", f"port{number}", "master", "switch", "up")
        host.run("ip", "address", "add", f"10.66.0.{number + 1}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        return host

    def cut(self, number):
        self.switch.run("ip", "link", "set", f"port{number}", "down")

    def own_devices(self, number):
        """Returns the names of network devices that jobs have made on the host and not removed."""
        names = [line.split(": ")[1] for line in self.hosts[number].run("ip", "-o", "link", "show").stdout.splitlines()]
        return [name for name in names if name.startswith("sc")]

    def end(self):
        for number in range(HOSTS):
            self.switch.run("ip", "link", "delete", f"port{number}", check=False)
        for namespace in (*self.hosts, self.switch):
            namespace.end()


@pytest.fixture
def cluster(tmp_path):
    with contextlib.ExitStack() as stack:
        made = Cluster(tmp_path)
        stack.callback(made.end)
        pool = Pool(tmp_path, prefix=made.switch.prefix)
        stack.callback(pool.down)
        made.pool = pool
        yield made


def placed(job):
    return {node["host"]: node["boxes"] for node in job.status()["nodes"]}


def test_a_cut_link_and_a_killed_host_cost_steps_and_not_the_job(cluster):
    base = Base()
    job = Job(cluster.pool, base, f"t{uuid.uuid4().hex[:8]}", "-n", 3, "--hosts", cluster.file, "--rsh", cluster.shell,
              "--lease", 2, "--", "mpiexec.mpich", "-n", "3", "/opt/stdchk-test/ring-mpich", "300", "4")
    try:
        job.wait_for("round 20")
        assert all(boxes for boxes in placed(job).values()), "each host has a container"
        assert job.checkpoint() == f"{job.name}.*.T1"
        job.wait_for("round 40")
        cluster.cut(1)
        job.wait_for("runs again from set T1", "err")
        # The lease is over: the host without a coordinator ends its containers and removes the network.
        wait_until(lambda: cluster.own_devices(1) == [], "the host that was cut off lets go of the network")
        run(BIN / "stdchk", "evacuate", "--job", job.name, "h0", env=job.environment)
        assert placed(job)["h0"] == []
        daemon = job.nodes()[3]
        os.kill(daemon, signal.SIGKILL)
        cluster.cut(3)
        job.wait_for("runs again from set T2", "err")
        assert sorted(placed(job)) == ["h0", "h2"] and job.status()["restarts"] == 2
        wait_until(lambda: cluster.own_devices(3) == [], "the removal of the killed daemon's devices")
        assert job.wait() == 0, job.err
        assert "300 lines" in job.result()
        assert [cluster.own_devices(number) for number in range(HOSTS)] == [[], [], [], []]
    finally:
        job.end()


# The container that moves only answers: it never sends first.
ECHO = """
import socket
served = socket.create_server(("0.0.0.0", 7777)).accept()[0]
while data := served.recv(1):
    served.sendall(data)
"""
ASK = """
import shlex, socket, subprocess, sys, time
name, program = sys.argv[1:]
server = subprocess.Popen(["/.stdchk/agent", name, "python3 -c " + shlex.quote(program)])
while True:
    try:
        link = socket.create_connection((name, 7777))
        break
    except OSError:
        time.sleep(0.1)
for turn in range(1000):
    began = time.monotonic()
    link.sendall(b"x")
    link.recv(1)
    print("answer", turn, round(time.monotonic() - began, 3), flush=True)
    time.sleep(0.2)
"""


def test_a_container_that_only_answers_is_reached_on_its_new_host_at_once(cluster):
    name = f"t{uuid.uuid4().hex[:8]}"
    job = Job(cluster.pool, Base(), name, "-n", 1, "--hosts", cluster.file, "--rsh", cluster.shell, "--spares", 2,
              "--", "python3", "-c", ASK, f"{name}-r0", ECHO)
    try:
        job.wait_for("answer 5 ")
        for host in ("h1", "h2"):
            assert placed(job)[host] == [1]
            run(BIN / "stdchk", "evacuate", "--job", name, host, env=job.environment)
            seen = len(job.lines["out"])
            wait_until(lambda seen=seen: len(job.lines["out"]) > seen + 3, "answers from the new host", 5)
    finally:
        job.end()
