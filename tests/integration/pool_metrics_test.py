"""Tests what the daemons of a real pool export to Prometheus: complete, correct, in time, and harmless."""

import concurrent.futures
import http.client
import json
import math
import os
import re
import socket
import threading
import time

import pytest
from processes import BIN, ROOT, run, stopped, wait_until

MIB = 1 << 20
DASHBOARD = ROOT / "scripts" / "monitoring" / "grafana-dashboard.json"
FAKE_SHELL = '#!/bin/sh\nshift\nexec "$@"\n'  # replaces ssh: the "host" is this machine
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')


class Page:
    """A page in the text format 0.0.4, parsed strictly: what Prometheus would refuse fails the test."""

    def __init__(self, text):
        self.samples = {}  # name: {sorted labels: value}
        self.types = {}
        helps = set()
        family = None
        assert text.endswith("\n")
        for line in text[:-1].split("\n"):
            if line.startswith("# HELP "):
                family, _, help_text = line[7:].partition(" ")
                assert family not in helps and help_text.endswith("."), line
                helps.add(family)
            elif line.startswith("# TYPE "):
                name, kind = line[7:].split(" ")
                assert name == family and kind in ("gauge", "counter", "histogram"), line
                assert name.endswith("_total") == (kind == "counter"), line
                self.types[name] = kind
            else:
                self._add(line, family)
        assert helps == set(self.types)
        for name, kind in self.types.items():
            if kind == "histogram":
                self._check_histogram(name)

    def _add(self, line, family):
        found = SAMPLE.fullmatch(line)
        assert found, line
        name, labels_text, value = found.groups()
        suffixes = ("_bucket", "_sum", "_count") if self.types[family] == "histogram" else ("",)
        assert name in [family + suffix for suffix in suffixes], line
        labels, rest = [], labels_text or ""
        while rest:
            label = LABEL.match(rest)
            assert label, line
            labels.append(label.group(1, 2))
            rest = rest[label.end():]
        assert len({label for label, _ in labels}) == len(labels), line
        number = float(value)
        assert not math.isnan(number) and (self.types[family] == "gauge" or number >= 0), line
        values = self.samples.setdefault(name, {})
        key = tuple(sorted(labels))
        assert key not in values, line
        values[key] = number

    def _check_histogram(self, name):
        for key, count in self.samples[name + "_count"].items():
            buckets = sorted(
                (float(dict(labels)["le"]), value)
                for labels, value in self.samples[name + "_bucket"].items()
                if tuple(pair for pair in labels if pair[0] != "le") == key)
            assert buckets[-1] == (math.inf, count)
            values = [value for _, value in buckets]
            assert values == sorted(values)
            assert key in self.samples[name + "_sum"]

    def value(self, name, **labels):
        """The sum of the samples with these labels; at least one must exist."""
        found = [value for key, value in self.samples[name].items() if labels.items() <= dict(key).items()]
        assert found, (name, labels)
        return sum(found)


def fetch(address, method="GET", seconds=10):
    """Returns status and body."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=seconds)
    try:
        connection.request(method, "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def scrape(address):
    status, text = fetch(address)
    assert status == 200, text
    return Page(text)


def addresses(pool, role):
    return [member["metrics"] for member in pool.status()["members"] if member["role"] == role]


def all_pages(pool):
    return [scrape(member["metrics"]) for member in pool.status()["members"]]


@pytest.fixture(scope="module")
def shown(module_pool):
    """A pool whose daemons all export metrics."""
    module_pool.up("--metrics", "127.0.0.1:0", "--copies", 2, benefactors=3, memory="128M")
    yield module_pool
    module_pool.down(check=False)


def test_figures_agree_with_what_was_written(shown):
    (manager,) = addresses(shown, "manager")
    (mount,) = addresses(shown, "mount")
    before, mount_before = scrape(manager), scrape(mount)
    content = os.urandom(8 * MIB + 123)
    path = shown.mount / "app.N0.T1"
    path.write_bytes(content)
    assert path.read_bytes() == content
    wait_until(lambda: scrape(manager).value("stdchk_drain_pending_files") == 0, "the drain")
    after, mount_after = scrape(manager), scrape(mount)

    def grown(name, **labels):
        return after.value(name, **labels) - before.value(name, **labels)

    def mount_grown(name, **labels):
        old = mount_before.value(name, **labels) if name in mount_before.samples else 0
        return mount_after.value(name, **labels) - old

    assert grown("stdchk_written_bytes_total") == len(content)
    assert grown("stdchk_drained_bytes_total") == len(content)
    assert grown("stdchk_logical_bytes") == len(content)
    assert grown("stdchk_images_total") == 1
    assert after.value("stdchk_manager_serves") == 1
    assert after.value("stdchk_benefactors", state="alive") == 3
    assert after.value("stdchk_manager_request_seconds_count", kind="commit") >= 1
    assert after.value("stdchk_manager_request_seconds_sum", kind="commit") > 0
    assert after.value("stdchk_journal_sync_seconds_count") <= after.value("stdchk_journal_records_total")

    assert mount_grown("stdchk_mount_written_bytes_total") == len(content)
    assert mount_grown("stdchk_mount_write_size_bytes_sum") == len(content)
    assert mount_grown("stdchk_mount_read_bytes_total") == len(content)
    assert mount_grown("stdchk_mount_committed_bytes_total") == len(content)
    assert mount_grown("stdchk_mount_closed_bytes_total") == len(content)
    assert mount_grown("stdchk_mount_requests_total", kind="create") == 1
    assert mount_grown("stdchk_mount_open_to_close_seconds_total") > 0
    # Each chunk adds a header of 64 bytes. There are nine chunks, or more when a write was late.
    headers = mount_grown("stdchk_mount_sent_bytes_total") - len(content)
    assert 9 * 64 <= headers < MIB and headers % 64 == 0
    assert mount_grown("stdchk_mount_fetched_bytes_total") == len(content)
    assert mount_grown("stdchk_mount_cache_reads_total") >= 9
    assert mount_grown("stdchk_mount_cache_fetches_total") >= 9
    states = sum(mount_after.samples["stdchk_mount_window_state_bytes"].values())
    assert states == mount_after.value("stdchk_mount_window_bytes") > 0
    assert mount_after.value("stdchk_mount_rails", state="ready") >= 1

    benefactors = [scrape(address) for address in addresses(shown, "benefactor")]
    assert sum(page.value("stdchk_benefactor_drained_bytes_total") for page in benefactors) >= len(content)
    assert {page.value("stdchk_benefactor_number") for page in benefactors} == {1, 2, 3}
    assert sum(page.value("stdchk_benefactor_arena_bytes") for page in benefactors) == after.value(
        "stdchk_memory_bytes")
    wait_until(lambda: scrape(manager).value("stdchk_copies_missing_chunks") == 0, "the copies")
    benefactors = [scrape(address) for address in addresses(shown, "benefactor")]
    copied = sum(page.value("stdchk_benefactor_copied_bytes_total") for page in benefactors)
    assert copied == scrape(manager).value("stdchk_copied_bytes_total") >= len(content)


def test_errors_of_the_mount_are_counted_by_errno(shown):
    (mount,) = addresses(shown, "mount")
    with pytest.raises(FileNotFoundError):
        os.unlink(shown.mount / "absent.1")
    before = scrape(mount).value("stdchk_mount_errors_total", errno="EOPNOTSUPP") if (
        ("errno", "EOPNOTSUPP"),) in scrape(mount).samples.get("stdchk_mount_errors_total", {}) else 0
    (shown.mount / "plain").write_bytes(bytes(8192))
    run("fallocate", "-p", "-o", "0", "-l", "4K", shown.mount / "plain")
    with pytest.raises(OSError, match="not supported"):
        os.setxattr(shown.mount / "plain", "security.capability", b"\0\0\0\2" + bytes(16))
    page = scrape(mount)
    # The kernel may ask for an attribute that is refused, too.
    assert page.value("stdchk_mount_errors_total", errno="EOPNOTSUPP") > before
    assert page.value("stdchk_mount_errors_total", errno="ENOENT") >= 1
    assert page.value("stdchk_mount_requests_total", kind="fallocate") == 1


def test_all_pages_are_well_formed_while_a_writer_writes(shown):
    end = threading.Event()

    def write():
        content = os.urandom(4 * MIB)
        timestep = 0
        while not end.is_set():
            timestep += 1
            path = shown.mount / f"busy.N0.T{timestep}"
            path.write_bytes(content)
            path.unlink()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        writer = pool.submit(write)
        try:
            for _ in range(10):
                for page in all_pages(shown):
                    assert page.value("process_cpu_seconds_total") > 0
                    assert page.value("stdchk_build_info") == 1
        finally:
            end.set()
        writer.result(60)


def test_many_scrapes_at_once_do_no_harm(shown):
    path = shown.mount / "many.N0.T1"
    content = os.urandom(16 * MIB)
    targets = [member["metrics"] for member in shown.status()["members"]] * 40
    with concurrent.futures.ThreadPoolExecutor(80) as pool:
        answers = [pool.submit(fetch, address, "GET", 30) for address in targets]
        path.write_bytes(content)
        assert path.read_bytes() == content
        assert {answer.result(60)[0] for answer in answers} == {200}
    wait_until(lambda: all(page.value("process_open_fds") < 200 for page in all_pages(shown)),
               "the end of all connections")
    assert shown.stdchk("status", shown.mount).returncode == 0


def test_what_the_dashboard_shows_is_there(shown):
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    expressions += [variable["query"] for variable in dashboard["templating"]["list"]]
    assert len(expressions) > 40
    asked = {name for text in expressions for name in re.findall(r"\b(?:stdchk|process)_\w+", text)}
    known = set().union(*(page.samples for page in all_pages(shown)))
    status = Page(shown.stdchk("status", "--prometheus", shown.mount).stdout)
    # A manager without refused requests and a mount without errors export no such samples.
    known |= {"stdchk_manager_request_errors_total", "stdchk_mount_errors_total"}
    assert asked - known - set(status.samples) == set()
    # The manager exports all that status exports, under the same names, except what only status can know.
    (manager,) = addresses(shown, "manager")
    assert set(status.types) - set(scrape(manager).types) == {"stdchk_up", "stdchk_mounted"}
    labels = {(name, label) for text in expressions
              for name, inside in re.findall(r"(\w+)\{([^}]*)\}", text)
              for label in re.findall(r"(\w+)=", inside) if label != "pool"}
    pages = all_pages(shown)
    for name, label in labels:
        keys = [dict(key) for page in pages for key in page.samples.get(name, {})]
        assert any(label in key for key in keys), (name, label)
    for panel in dashboard["panels"]:
        assert panel["type"] == "row" or panel["targets"], panel["title"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_where_the_metrics_are_is_told(shown):
    targets = json.loads(shown.stdchk("status", "--prometheus-targets", shown.mount).stdout)
    assert [one["labels"]["role"] for one in targets] == ["manager"] + 3 * ["benefactor"] + ["mount"]
    assert {one["labels"]["pool"] for one in targets} == {str(shown.mount)}
    assert [one["targets"] for one in targets] == [
        [member["metrics"]] for member in shown.status()["members"]]
    said = shown.stdchk("status", shown.mount).stdout
    for one in targets:
        assert f"http://{one['targets'][0]}/metrics" in said


def test_a_daemon_that_is_stopped_keeps_no_scraper_and_answers_again(shown):
    for role in ("manager", "benefactor"):
        address, pid = addresses(shown, role)[0], shown.pids(role)[0]
        with stopped(pid):
            began = time.monotonic()
            with pytest.raises((TimeoutError, socket.timeout)):
                fetch(address, seconds=1)
            assert time.monotonic() - began < 5
        assert scrape(address).value("stdchk_build_info") == 1


def test_a_mount_that_is_ended_by_its_watchdog_shows_figures_again(pool):
    pool.up("--metrics", "0", benefactors=1, memory="64M")
    (before,) = addresses(pool, "mount")
    guard = pool.pids("mount")[0]
    (ward,) = run("pgrep", "-P", guard).stdout.split()
    os.kill(int(ward), 9)

    def answers():
        try:
            return scrape(addresses(pool, "mount")[0]).value("stdchk_mount_manager_up") == 1
        except OSError:
            return False

    wait_until(answers, "the metrics of the new process")
    assert scrape(addresses(pool, "mount")[0]).value("stdchk_mount_written_bytes_total") == 0
    assert before.startswith("127.0.0.1:")
    # A recovered manager exports them again.
    pool.kill("manager")
    pool.stdchk("recover", pool.mount)
    assert scrape(addresses(pool, "manager")[0]).value("stdchk_epoch") == 2
    pool.down(check=False)


def test_a_standby_shows_that_it_follows(pool):
    pool.up("--metrics", "0", "--standby", benefactors=3, memory="64M")
    (standby,) = addresses(pool, "standby")
    page = scrape(standby)
    assert page.value("stdchk_manager_serves") == 0
    assert page.value("stdchk_standby_hears_manager") == 1
    (manager,) = addresses(pool, "manager")
    assert scrape(manager).value("stdchk_standby_follows") == 1
    pool.kill("manager")

    def serves():
        status, text = fetch(standby)
        if status != 200 or Page(text).value("stdchk_manager_serves") != 1:
            return False
        return Page(text).value("stdchk_benefactors", state="alive") == 3

    wait_until(serves, "the standby to take over", 60)
    pool.down(check=False)


def free_ports(count):
    """The first of `count` consecutive ports that are free now."""
    for first in range(23000, 32000, 50):
        taken = []
        try:
            for port in range(first, first + count):
                one = socket.socket()
                taken.append(one)
                one.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in taken:
                one.close()
    raise AssertionError("no free ports")


def test_ports_are_counted_up_and_one_that_is_taken_is_named(pool):
    first = free_ports(4)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 2))
        taken.listen()
        words = ["up", "--mount", pool.mount, "--benefactors", 2, "--memory", "64M", "--metrics", first]
        refused = pool.stdchk(*words, check=False)
        assert refused.returncode == 2
        assert f"metrics cannot be had at 127.0.0.1:{first + 2}" in refused.stderr
        assert "choose another port" in refused.stderr
    pool.stdchk(*words)
    assert [member["metrics"] for member in pool.status()["members"]] == [
        f"127.0.0.1:{first + i}" for i in range(4)]
    pool.down()
    wrong = pool.stdchk("up", "--mount", pool.mount, "--metrics", "nonsense", check=False)
    assert wrong.returncode == 2 and "is not ADDRESS:PORT" in wrong.stderr


def test_metrics_of_other_hosts_are_told(pool):
    shell = pool.folder / "shell"
    shell.write_text(FAKE_SHELL)
    shell.chmod(0o755)
    hosts = pool.folder / "hosts"
    hosts.write_text("one address=127.0.0.1 benefactors=2\ntwo address=127.0.0.1\n")
    words = ["--mount", pool.mount, "--hosts", hosts, "--rsh", shell, "--benefactors", 1, "--memory", "64M",
             "--listen", "127.0.0.1"]
    pool.stdchk("up", *words, "--metrics", "0.0.0.0:0")
    members = [member for member in pool.status()["members"] if member["host"]]
    assert [member["host"] for member in members] == ["one", "one", "two"]
    numbers = {scrape("127.0.0.1:" + member["metrics"].rpartition(":")[2]).value("stdchk_benefactor_number")
               for member in members}
    assert numbers == {1, 2, 3}
    targets = json.loads(pool.stdchk("status", "--prometheus-targets", pool.mount).stdout)
    assert [one["targets"][0].partition(":")[0] for one in targets] == [
        socket.gethostname(), "one", "one", "two", socket.gethostname()]
    pool.down()
    # A port reachable only from the other host is no target.
    pool.stdchk("up", *words, "--metrics", "0")
    done = pool.stdchk("status", "--prometheus-targets", pool.mount)
    assert len(json.loads(done.stdout)) == 2
    assert done.stderr.count("can be read there only") == 3
    pool.down()


def test_without_the_flag_nothing_listens_for_scrapes(pool):
    pool.up(benefactors=1, memory="64M")
    assert {member["metrics"] for member in pool.status()["members"]} == {""}
    assert "metrics" not in pool.stdchk("status", pool.mount).stdout.lower()
    assert json.loads(pool.stdchk("status", "--prometheus-targets", pool.mount).stdout) == []
    assert "--metrics" in run(BIN / "stdchk-manager", "--help").stdout
    pool.down()
