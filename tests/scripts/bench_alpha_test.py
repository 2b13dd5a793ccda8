"""Tests the benchmark section on copies beside MPI messages: which steps count, how its rows are made, and
when it fails."""

import contextlib
import http.server
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import alpha  # noqa: E402
import links  # noqa: E402
from report import Failure, Report  # noqa: E402

SIZES = alpha.Sizes(image_mib=4, message_mib=1, images=2, compute_ms=5, steps_after=3)
COPIED_BYTES = 4 * 4 << 20  # bytes of the second copies of one image of each rank


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder with stand-ins for all programs that the section needs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("ip", "tc", "nsenter", "unshare", "halo-ranks"):
        (folder / name).write_text("#!/bin/sh\n")
    (folder / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    for path in folder.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder


def step(began, exchanged, computing=0.25, reducing=0.5):
    """Returns a step of the slowest rank, which computes from the step's beginning. All times are exact in binary."""
    computed = began + computing
    return {"began": began, "computing_s": computing, "computed": computed, "reduced": computed + reducing, "exchanged": exchanged}


def trial(meanwhile, after, seconds=2.0, moved=COPIED_BYTES):
    """A trial of two images of sizes SIZES. `meanwhile`, `after`: the duration of the communicating steps in
    seconds. Computing takes .25 s, and half as much again while copies are made."""
    one = alpha.Trial()
    for image in range(2):
        closed = 1000.0 * image
        over = closed + seconds
        steps = [step(closed + seconds / 8, closed + seconds / 8 + 0.375 + meanwhile, 0.375)] * 3
        steps += [step(over + 1, over + 1.25 + after)] * 3
        one.add(closed, over, moved, {"steps": steps, "taken": time.time() + 5})
    return one


def found(rounds=2):
    """Messages take 1 s alone, 2 s beside second copies or TCP streams, 4 s beside third copies."""
    return {
        "1 copy": [trial(1.0, 1.0, 8.0, 0)] * rounds,
        "TCP streams": [trial(2.0, 1.0, 4.0)] * rounds,
        "2 copies": [trial(2.0, 1.0, 8.0)] * rounds,
        "3 copies": [trial(4.0, 1.0, 16.0, 2 * COPIED_BYTES)] * rounds,
        "2 copies, 32 MiB/s each": [trial(1.25, 1.0, 4.0)] * rounds,
    }


def report(**required):
    one = Report({}, "today.", **required)
    one.section("Copies", "Beside messages.")
    return one


def row(one, name):
    return next(each for each in one.rows if each.name == name)


def test_the_section_names_what_it_needs_and_does_not_have(programs, monkeypatch):
    assert alpha.missing(programs) == []
    (programs / "mpirun").write_text("#!/bin/sh\necho HYDRA build details\n")
    assert alpha.missing(programs) == ["Open MPI's mpirun"]
    (programs / "halo-ranks").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nowhere")
    assert alpha.missing(programs) == ["the rights of root", "ip", "tc", "nsenter", "unshare", "mpirun",
                                       "halo-ranks, which is built with an MPI"]


def test_only_steps_that_lie_within_count_as_meanwhile_and_only_later_ones_as_after():
    one = alpha.Trial()
    steps = [step(9, 11), step(10, 12), step(15, 20), step(19, 21), step(20, 23), step(23, 24)]
    one.add(10.0, 20.0, 7, {"steps": steps, "taken": 5.0})
    assert one.meanwhile[alpha.COMMUNICATING] == [1.75, 4.75]
    assert one.after[alpha.COMMUNICATING] == [2.75, 0.75]
    assert one.meanwhile[alpha.COMPUTING] == [0.25, 0.25] and one.after[alpha.REDUCTION] == [0.5, 0.5]
    assert (one.seconds, one.bytes_count, one.steps, one.taken) == ([10.0], 7, 6, 5.0)
    one.add(100.0, 105.0, 8, {"steps": steps, "taken": 4.0})
    assert (one.seconds, one.bytes_count, one.steps, one.taken) == ([10.0, 5.0], 15, 12, 4.0)
    assert one.rate == 1.0


def test_too_few_steps_are_no_measurement():
    trial(2.0, 1.0, 4.0).check(alpha.STREAMS)
    for part, said in (("meanwhile", "2 steps while it goes on"), ("after", "2 steps after it")):
        one = trial(2.0, 1.0, 4.0)
        del getattr(one, part)[alpha.COMMUNICATING][2:]
        with pytest.raises(Failure, match=f"TCP streams: {said}"):
            one.check(alpha.STREAMS)


def test_messages_that_have_not_gone_over_the_links_are_noticed():
    one = trial(2.0, 1.0, 8.0)
    messages = 12 * 2 << 20
    needed = messages + 2 * COPIED_BYTES // 4
    alpha.check_links(alpha.COPIES[0], SIZES, one, [needed] * 4)
    # Copies may be uneven among links; messages are even.
    alpha.check_links(alpha.COPIES[0], SIZES, one, [messages, needed, needed, 2 * needed - messages])
    for sent in ([needed - 1, needed, needed, needed], [messages - 1, needed, needed, 9 * needed], [0] * 4):
        with pytest.raises(Failure, match="2 copies: the hosts' links"):
            alpha.check_links(alpha.COPIES[0], SIZES, one, sent)


def test_an_image_that_can_be_compressed_or_is_cut_fails(tmp_path):
    image = tmp_path / "app.N0.T1"
    image.write_bytes(os.urandom(4 << 20))
    alpha.check_image(image, SIZES)
    for content in (os.urandom(2 << 20) + bytes(2 << 20), os.urandom((4 << 20) - 1)):
        image.write_bytes(content)
        with pytest.raises(Failure, match="can be compressed"):
            alpha.check_image(image, SIZES)


def test_all_rows_that_must_come_come_and_are_what_they_say():
    one = report(ratios=alpha.RATIOS, figures=alpha.FIGURES)
    alpha.add_rows(one, SIZES, found(), [2e9, 4e9])
    one.check_complete()
    two = row(one, "2 copies: communicating step while they are made, redundant 8 s after close")
    assert two.figure.values == [2000, 2000] and two.ratio.values == [2, 2]
    assert row(one, "3 copies: communicating step while they are made, redundant 16 s after close").ratio.values == [4, 4]
    assert row(one, "2 copies: computing step while they are made").ratio.values == [1.5, 1.5]
    assert row(one, "1 copy: communicating step in the first second").ratio.values == [1, 1]
    beside = row(one, "TCP streams: communicating step beside them")
    assert beside.figure.values == [2000, 2000] and beside.ratio.values == [2, 2]
    assert row(one, "3 copies: alpha").ratio.values == [2, 2]
    assert row(one, "2 copies, 32 MiB/s each: alpha").ratio.values == [0.625, 0.625]
    # Second copies take twice as long as the streams; third copies also twice, for twice as many bytes.
    assert row(one, "2 copies: from close until redundant").ratio.values == [2, 2]
    assert row(one, "3 copies: from close until redundant").ratio.values == [2, 2]
    limited = row(one, "2 copies, 32 MiB/s each: from close until redundant")
    assert limited.ceiling_name == "as many bytes at that rate" and limited.ceiling.values == [0.125, 0.125]
    assert row(one, "3 copies: copied").figure.values == [32, 32]
    assert row(one, "1 copy: messages, of each host").ratio.values == [2 * (1 << 20) / 2e9, 2 * (1 << 20) / 4e9]
    assert row(one, "communication's share of a step").figure.values == [0.8, 0.8]


def test_a_case_that_is_left_out_or_older_than_the_run_fails():
    one = report(ratios=[*alpha.RATIOS, "4 copies: alpha"], figures=alpha.FIGURES)
    alpha.add_rows(one, SIZES, found(), [2e9, 4e9])
    with pytest.raises(Failure, match="not measured: 4 copies: alpha \\(its ratio\\)$"):
        one.check_complete()
    old = found()
    old["TCP streams"] = [trial(2.0, 1.0, 4.0)]  # from fewer rounds
    with pytest.raises(Failure, match="same rounds"):
        alpha.add_rows(report(), SIZES, old, [2e9, 4e9])
    old = found()
    old["TCP streams"][0].taken -= 60
    with pytest.raises(Failure, match="older than this run"):
        alpha.add_rows(report(), SIZES, old, [2e9, 4e9])


def test_cases_take_turns(monkeypatch, tmp_path):
    asked, every = [], found()

    class Network:
        def stream(self, total, count):
            asked.append("link")
            return 1.0

    def try_case(bin_dir, folder, net, sizes, case):
        folder.mkdir()  # the check's own folder
        asked.append(case.name)
        return every[case.name][0]
    monkeypatch.setattr(alpha.links, "network", lambda *_: contextlib.nullcontext(Network()))
    monkeypatch.setattr(alpha, "try_case", try_case)
    one = report(ratios=alpha.RATIOS, figures=alpha.FIGURES)
    alpha.measure(one, tmp_path, tmp_path, 3, SIZES)
    one.check_complete()
    names = [case.name for case in alpha.CASES]
    assert asked == ["link", *names, "link", *names[1:], names[0], "link", *names[2:], *names[:2]]
    assert len(row(one, "2 copies: alpha").figure.values) == 3


def test_what_goes_on_beside_the_steps_is_of_the_case():
    cases = {case.name: case for case in alpha.CASES}
    assert [name for name, case in cases.items() if case.quiet] == ["1 copy"]
    assert cases["TCP streams"].options == ("--copies", 1)
    assert cases["3 copies"].options == ("--copies", 3)
    assert cases["2 copies, 32 MiB/s each"].options == ("--copies", 2, "--copy-rate", "32M")


def test_copies_are_made_when_nothing_is_missing_and_all_bytes_were_copied(monkeypatch, capsys):
    """The manager's figures may be older than the last close."""
    told = [(0, 0), (3, 50), (0, 99), (1, 100), (0, 120), (0, 130), (0, 200)]

    class Manager(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            missing, copied = told.pop(0)
            text = (f"# HELP stdchk_copied_bytes_total Bytes.\nstdchk_copied_bytes_total {copied}\n"
                    f'stdchk_copies_missing_chunks {missing}\nstdchk_requests{{kind="a b"}} 7\n').encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Manager)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(alpha, "METRICS", server.server_address)
    monkeypatch.setattr(alpha, "POLL_S", 0.0)
    try:
        monkeypatch.setattr(sys, "stdin", io.StringIO("100\n200\n"))
        alpha.watch()
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "connected" and [json.loads(line)["copied"] for line in said[1:]] == [120, 200]
        assert told == []
        told += [(1, 10)] * 3
        monkeypatch.setattr(sys, "stdin", io.StringIO("100\n"))
        monkeypatch.setattr(alpha, "COPYING_S_MAX", -1)
        with pytest.raises(SystemExit, match="10 of 100 bytes are copied"):
            alpha.watch()
    finally:
        server.shutdown()
        server.server_close()


class OneHost:
    """Stands in for a network; records the programs that run on it in a file."""

    def __init__(self, folder):
        self.started, self.client = folder / "started", None
        self.hosts = []

    def prefix(self, _):
        return []

    def addresses(self):
        return []

    def processes(self):
        return {int(self.started.read_text())} if self.started.exists() else set()


def ranks(programs, folder, script):
    (programs / "mpirun").write_text(f"#!/bin/sh\n{script}\n")
    return alpha.program(programs, folder, OneHost(folder), SIZES, folder / "mnt")


def test_the_program_is_heard_and_a_failed_one_is_noticed(programs, tmp_path):
    with ranks(programs, tmp_path, """echo '{"closed": 1.5}'""") as one:
        assert one.tells("closed") == {"closed": 1.5}
    with (pytest.raises(Failure, match="something else than steps(.|\n)*no link"),
          ranks(programs, tmp_path, "echo no link >&2") as one):
        one.tells("steps")
    with (pytest.raises(Failure, match="halo-ranks has failed"),
          ranks(programs, tmp_path, """echo '{"closed": 1.5}'; exit 3""") as one):
        one.tells("closed")


def test_what_the_program_has_started_ends_with_it(programs, tmp_path):
    script = f"""sleep 1000 & echo $! >{tmp_path}/started; echo '{{"closed": 1.5}}'; wait"""
    with pytest.raises(Failure, match="stop"), ranks(programs, tmp_path, script) as one:
        one.tells("closed")
        raise Failure("stop")
    pid = int((tmp_path / "started").read_text())
    until = time.monotonic() + 10
    while pathlib.Path(f"/proc/{pid}/stat").exists() and time.monotonic() < until:
        if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    assert time.monotonic() < until and one.process.poll() == -signal.SIGKILL


class Loopback(links.Network):
    def __init__(self, hosts):
        self.hosts, self.addressed = [None] * hosts, [f"127.0.0.{2 + i}" for i in range(hosts)]

    def prefix(self, _):
        return []

    def addresses(self):
        return self.addressed


def test_streams_go_from_each_host_to_each_other_one_as_often_as_asked():
    with Loopback(3).mesh(6 << 20) as send_once:
        began = time.monotonic()
        first = send_once()
        second = send_once()
        assert began < first < second <= time.monotonic()


def test_a_stream_that_fails_is_noticed(monkeypatch):
    one = Loopback(2)
    one.addressed[0] = "192.0.2.1"  # no interface has this address
    with pytest.raises(Failure, match="a TCP stream has failed"), one.mesh(1 << 20):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_hosts_have_links_that_are_limited_and_counted(tmp_path):
    with links.network(tmp_path, "100mbit", ["100mbit"] * 2) as net:
        assert net.processes() == set()
        before = [net.sent_bytes(number) for number in range(2)]
        with net.mesh(4 << 20) as send_once:
            began = time.monotonic()
            assert send_once() - began > 0.8 * (4 << 20) / 12.5e6
        sent = [net.sent_bytes(number) - earlier for number, earlier in enumerate(before)]
        assert all(4 << 20 <= each < 5 << 20 for each in sent)
        sleeper = subprocess.Popen([*net.prefix(net.hosts[1]), "sleep", "100"])
        try:
            until = time.monotonic() + 5
            while sleeper.pid not in net.processes() and time.monotonic() < until:
                time.sleep(0.02)
            assert net.processes() == {sleeper.pid}
        finally:
            sleeper.kill()
            sleeper.wait()
