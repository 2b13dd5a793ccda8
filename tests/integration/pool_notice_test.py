"""Tests a pool whose memory is about to end: it drains the newest set first, within a stated time. Also tests the age of
the last safe set that schedulers read, and mounts of pods."""

import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from typing import ClassVar

import pytest
from processes import BIN, PATIENCE, ROOT, children_of, is_running, run, stopped, wait_until

MIB = 1 << 20
IMAGES = 8


def write_set(pool, application, timestep, images=IMAGES, size=MIB):
    for rank in range(images):
        (pool.mount / f"{application}.N{rank}.T{timestep}").write_bytes(os.urandom(size))


def drain_within(pool, seconds, *arguments):
    """Returns the exit status, the answer, and the seconds that it took."""
    began = time.monotonic()
    done = pool.stdchk("drain", "--within", f"{seconds}s", "--json", *arguments, pool.mount, check=False)
    return done.returncode, json.loads(done.stdout), time.monotonic() - began


def last_drained(pool, timestep):
    """Returns the time in ns when the last image of the set got its name in the drain directory."""
    return max((pool.drain / f"a.N{rank}.T{timestep}").stat().st_ctime_ns for rank in range(IMAGES))


def test_sets_are_drained_the_newest_first(pool):
    pool.up("--policy", f"images={IMAGES}", "--drain-rate", "2M", benefactors=2)
    for timestep in (1, 2, 3):
        write_set(pool, "a", timestep)
    status, answer, _ = drain_within(pool, 50 * PATIENCE)
    assert status == 0 and answer["drained"] and answer["left"] == []
    assert answer["safe_set"] == "a.*.T3"
    # The drain of T1 may have ended before the command began.
    assert last_drained(pool, 3) < last_drained(pool, 2)
    assert (pool.drain / ".stdchk-manifest").exists()


def test_a_limit_of_the_wait_gives_the_same_order_and_says_what_is_left(pool):
    pool.up("--policy", f"images={IMAGES}", "--drain-rate", "2M", benefactors=2)
    for timestep in (1, 2, 3):
        write_set(pool, "a", timestep)
    with stopped(*pool.pids("benefactor")):
        done = pool.stdchk("drain", "--wait", "--timeout", 2, pool.mount, check=False)
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert said[0] == "stdchk: not drained: a.*.T3: 8 of 8 files, 8.0 MiB"
    assert said[1].startswith("stdchk: not drained: a.*.T2: 8 of 8 files")
    assert said[-1] == "stdchk: the drain was not done within 2 s"
    pool.stdchk("drain", "--wait", "--timeout", 50 * PATIENCE, pool.mount)
    assert last_drained(pool, 3) < last_drained(pool, 2)


def test_nothing_makes_the_drain_last_longer_and_what_is_left_is_named(pool):
    pool.up("--policy", f"images={IMAGES}", "--drain-rate", "64K", benefactors=2)
    write_set(pool, "a", 1, size=100)
    assert drain_within(pool, 50 * PATIENCE)[0] == 0
    (pool.mount / "log").write_bytes(os.urandom(MIB))
    write_set(pool, "a", 2)
    (pool.mount / "a.N0.T3").write_bytes(os.urandom(MIB))
    status, answer, took = drain_within(pool, 2)
    assert status == 1 and not answer["drained"] and took < 2 + 2 * PATIENCE
    assert answer["safe_set"] == "a.*.T1"
    assert [(left["name"], left["set"], left["complete"]) for left in answer["left"]] == [
        ("a.*.T2", True, True), ("a.*.T3", True, False), ("log", False, False)]
    shown = pool.stdchk("drain", "--within", "1s", pool.mount, check=False).stdout.splitlines()
    assert shown[0] == "safe        a.*.T1" and shown[1].startswith("left        a.*.T2: ")
    with stopped(*pool.pids("manager")):
        began = time.monotonic()
        done = pool.stdchk("drain", "--within", "2s", pool.mount, check=False)
        assert done.returncode == 2 and time.monotonic() - began < 2 + 2 * PATIENCE
        assert "the pool did not answer within 2 s" in done.stderr


def safe_metric(url):
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("stdchk_safe_set_timestamp_seconds ")]
    return float(value)


def test_the_time_of_the_last_safe_set_is_in_a_file_in_status_and_in_metrics(pool):
    kept = pool.folder / "safe.json"
    pool.up("--policy", "images=2,keep=1", "--safe-file", kept, "--metrics", "0")
    (manager,) = [each["metrics"] for each in pool.status()["members"] if each["role"] == "manager"]
    url = f"http://{manager}/metrics"
    assert pool.status()["pool"]["safe_set"] is None and not kept.exists()
    assert safe_metric(url) == 0
    assert "none: no complete set is drained whole" in pool.stdchk("status", pool.mount).stdout
    write_set(pool, "run", 1, images=2)
    wait_until(lambda: pool.status()["pool"]["safe_set"], "the first safe set")
    safe = pool.status()["pool"]["safe_set"]
    newest = max((pool.mount / f"run.N{rank}.T1").stat().st_ctime_ns for rank in range(2))
    assert (safe["name"], safe["time_ns"]) == ("run.*.T1", newest)
    wait_until(kept.exists, "the file")
    assert json.loads(kept.read_text()) == safe and kept.stat().st_mtime_ns == newest
    wait_until(lambda: abs(safe_metric(url) - newest / 1e9) < 0.001, "the metric")
    shown = pool.stdchk("status", "--prometheus", pool.mount).stdout
    assert "stdchk_safe_set_timestamp_seconds" in shown
    # An undrained newer image changes nothing.
    with stopped(*pool.pids("benefactor")[1:]):
        (pool.mount / "run.N0.T2").write_bytes(b"x")
        time.sleep(1.5)
        assert json.loads(kept.read_text()) == safe
    write_set(pool, "run", 2, images=2)
    wait_until(lambda: json.loads(kept.read_text())["name"] == "run.*.T2", "the next safe set")
    pool.down("--drain")
    assert json.loads(kept.read_text())["name"] == "run.*.T2"


class Metadata(http.server.BaseHTTPRequestHandler):
    """The metadata service of three clouds. The first two questions find no notice."""

    asked = 0

    def do_PUT(self):
        assert self.path == "/latest/api/token"
        self.answer(200, "token")

    def do_GET(self):
        Metadata.asked += 1
        has_notice = Metadata.asked > 2
        if self.path == "/latest/meta-data/spot/instance-action":
            assert self.headers["X-aws-ec2-metadata-token"] == "token"
            text = '{"action": "terminate", "time": "2026-01-01T00:00:00Z"}'
            self.answer(200 if has_notice else 404, text if has_notice else "")
        elif self.path == "/computeMetadata/v1/instance/preempted":
            assert self.headers["Metadata-Flavor"] == "Google"
            self.answer(200, "TRUE" if has_notice else "FALSE")
        else:
            assert self.path.startswith("/metadata/scheduledevents?api-version=")
            assert self.headers["Metadata"] == "true"
            events = [{"EventType": "Preempt"}] if has_notice else [{"EventType": "Freeze"}]
            self.answer(200, json.dumps({"DocumentIncarnation": 1, "Events": events}))

    def answer(self, code, text):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def test_the_notice_of_each_cloud_starts_the_drain(pool, tmp_path):
    pool.up("--policy", "images=1", benefactors=1)
    write_set(pool, "a", 1, images=1)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = pool.environment | {
        "STDCHK_METADATA": f"http://127.0.0.1:{server.server_port}",
        "PATH": f"{pool.environment['STDCHK_BIN']}:{os.environ['PATH']}",
    }
    try:
        for cloud in ("aws", "gcp", "azure"):
            Metadata.asked = 0
            done = subprocess.run(
                [ROOT / "scripts/cloud/notice", cloud, "--every", "0.1", pool.mount],
                env=environment, capture_output=True, text=True, timeout=30 * PATIENCE)
            assert done.returncode == 0, done.stderr
            assert Metadata.asked == 3 and "safe        a.*.T1" in done.stdout
    finally:
        server.shutdown()
    done = subprocess.run([ROOT / "scripts/cloud/notice", "elsewhere"], capture_output=True, text=True)
    assert done.returncode == 2 and "Usage:" in done.stderr


def test_a_notice_that_could_never_be_seen_is_an_error(tmp_path):
    (tmp_path / "bash").symlink_to("/bin/bash")
    done = subprocess.run([ROOT / "scripts/cloud/notice", "aws"], env={"PATH": str(tmp_path)}, capture_output=True,
                          text=True, timeout=10 * PATIENCE)
    assert done.returncode == 2 and "curl is not installed" in done.stderr, done.stderr


class Endless(http.server.BaseHTTPRequestHandler):
    """A metadata service whose answers do not end. `sent` has the MiB of each answer that the client has ended."""

    sent: ClassVar[list[int]] = []

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        count = 0
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"A" * MIB)
                count += 1
        Endless.sent.append(count)

    def log_message(self, *_):
        pass


def test_an_answer_without_end_is_no_notice():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    waits = subprocess.Popen(
        [ROOT / "scripts/cloud/notice", "gcp", "--every", "0.1"], stderr=subprocess.DEVNULL, start_new_session=True,
        env=os.environ | {"STDCHK_METADATA": f"http://127.0.0.1:{server.server_port}",
                          "PATH": f"{BIN}:{os.environ['PATH']}"})
    try:
        wait_until(lambda: len(Endless.sent) >= 2 or waits.poll() is not None, "two questions")
        assert waits.poll() is None
        assert max(Endless.sent) < 16  # what the sockets' buffers hold
    finally:
        os.killpg(waits.pid, signal.SIGKILL)
        waits.wait()
        server.shutdown()


def test_a_pod_sees_the_mount_that_replaces_a_dead_one(pool):
    """The mounts are those of packaging/kubernetes: the node's folder is shared, and the pod's copy is a slave of it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, as the mount's container does")
    pool.up(benefactors=1, drain=False)
    node = pool.folder / "node"
    node.mkdir()
    run("mount", "--bind", node, node)
    run("mount", "--make-shared", node)
    pod = subprocess.Popen(["unshare", "--mount", "--propagation", "slave", "sleep", "600"])
    content = os.urandom(2 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(content)

    def seen():
        done = subprocess.run(["nsenter", "-t", str(pod.pid), "-m", "cat", node / "mount" / "app.N0.T1"],
                              capture_output=True, timeout=60 * PATIENCE)
        return done.stdout == content

    try:
        wait_until(lambda: os.readlink(f"/proc/{pod.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"), "the pod")
        point = pool.mount_by_hand("node/mount")
        assert seen()
        guard = pool.hand_processes[-1]
        os.kill(children_of(guard.pid)[0], signal.SIGKILL)
        wait_until(seen, "the mount of the guard's next child")
        # The container dies as a whole; the next one does what pool.yaml says.
        processes = [guard.pid, *children_of(guard.pid)]
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        guard.wait()
        wait_until(lambda: not any(map(is_running, processes)), "the end of the container")
        assert not seen()
        subprocess.run(["umount", "-l", point], capture_output=True)
        pool.mount_by_hand("node/mount")
        wait_until(seen, "the next container's mount")
    finally:
        pod.kill()
        pod.wait()
        for process in pool.hand_processes:
            process.terminate()
            process.wait(20)
        run("umount", "-l", "-R", node, check=False)
