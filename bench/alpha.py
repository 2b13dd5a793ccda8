"""Measures by how much copies made after close() lengthen the steps of an MPI program on the same links
(alpha of Walters and Chaudhary). Used by bench/run."""

import collections
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import zlib

import links
from report import Failure, Series

HOSTS = 4
LINK = "1gbit"
RATE_MIB = 32  # MiB/s of each benefactor, where it is limited
METRICS = (f"{links.NET}.1", 9200)
COPIED = "stdchk_copied_bytes_total"
POLL_S = 0.05
ALONE_S = 1.0  # time after close that counts as "meanwhile" where nothing happens then
STEPS_LEAST = 3
TRIAL_S_MAX = 120
COPYING_S_MAX = 60
MIB = 1 << 20

COMMUNICATING, REDUCTION, COMPUTING = "communicating step", "reduction of 16 bytes", "computing step"


@dataclasses.dataclass
class Case:
    """The activity after close() has returned."""

    name: str
    copies: int = 1
    streams: bool = False  # plain TCP streams of as many bytes as a second copy
    rate_mib: int = 0  # limit of each benefactor; 0: none

    @property
    def quiet(self):
        return self.copies == 1 and not self.streams

    @property
    def options(self):
        return ("--copies", self.copies, *(("--copy-rate", f"{self.rate_mib}M") if self.rate_mib else ()))


ALONE = Case("1 copy")
STREAMS = Case("TCP streams", streams=True)
COPIES = (Case("2 copies", 2), Case("3 copies", 3), Case(f"2 copies, {RATE_MIB} MiB/s each", 2, rate_mib=RATE_MIB))
CASES = (ALONE, STREAMS, *COPIES)

RATIOS = ([f"{ALONE.name}: {what} in the first second" for what in (COMMUNICATING, COMPUTING)]
          + [f"{ALONE.name}: messages, of each host"]
          + [f"{STREAMS.name}: {what} beside them*" for what in (COMMUNICATING, COMPUTING)]
          + [f"{case.name}: {what}" for case in COPIES
             for what in (f"{COMMUNICATING} while they are made, redundant * s after close", f"{REDUCTION} while they are made",
                          f"{COMPUTING} while they are made", "alpha", "from close until redundant")])
FIGURES = ["communication's share of a step"] + [f"{case.name}: copied" for case in COPIES]


@dataclasses.dataclass
class Sizes:
    image_mib: int
    message_mib: int
    images: int
    compute_ms: int
    steps_after: int

    @property
    def image_bytes(self):
        return self.image_mib * MIB

    def memory(self, copies):
        """Returns the memory that each rank's benefactor lends. It has room for grants and for uneven shares."""
        return f"{copies * self.images * self.image_mib * 3 // 2 + 64}M"


def missing(bin_dir):
    """Names what the section needs and this machine lacks."""
    found = [] if os.geteuid() == 0 else ["the rights of root"]
    found += [name for name in ("ip", "tc", "nsenter", "unshare", "mpirun") if shutil.which(name) is None]
    if "mpirun" not in found and "Open MPI" not in call("mpirun", "--version").stdout:
        found.append("Open MPI's mpirun")
    return found + ([] if (bin_dir / "halo-ranks").exists() else ["halo-ranks, which is built with an MPI"])


def call(*command, timeout=120):
    return subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, timeout=timeout)


def run(*command):
    done = call(*command)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- the pool, with a mount on each host --------------------------------------------------------

@contextlib.contextmanager
def pool(bin_dir, folder, net, memory, *options):
    """Starts the pool; yields the common prefix of the mounts' paths."""
    hosts, shell = net.write_hosts(memory)
    here, state, name = net.prefix(net.client), folder / "state", folder / "pool"
    run(*here, bin_dir / "stdchk", "up", "--no-mount", "--mount", name, "--state", state, "--hosts", hosts, "--rsh", shell,
        "--listen", f"{links.NET}.1", "--transport", "tcp", "--stripe-width", HOSTS, "--naming", "off",
        "--metrics", f"0.0.0.0:{METRICS[1]}", *options)
    try:
        record = json.loads((state / "pool.json").read_text())
        with contextlib.ExitStack() as stack:
            daemons = [stack.enter_context(mounting(bin_dir, net.prefix(holder), record, folder / f"mnt{number}"))
                       for number, holder in enumerate(net.hosts)]
            for number, daemon in enumerate(daemons):
                wait_mounted(daemon, folder / f"mnt{number}")
            yield folder / "mnt"
    finally:
        run(*here, bin_dir / "stdchk", "down", name)


@contextlib.contextmanager
def mounting(bin_dir, prefix, record, mount):
    mount.mkdir()
    with open(mount.with_suffix(".log"), "wb") as said:
        daemon = subprocess.Popen(
            [*prefix, bin_dir / "stdchk-mount", "--manager", record["manager_address"], "--secret-file", record["secret_file"],
             "--transport", "tcp", "--log-level", "error", "--ready-file", mount.with_suffix(".ready"), mount],
            stdout=said, stderr=said)
    try:
        yield daemon
    finally:
        call("umount", mount)
        daemon.terminate()
        daemon.wait(20)


def wait_mounted(daemon, mount):
    until = time.monotonic() + 30
    while not mount.with_suffix(".ready").exists():
        if daemon.poll() is not None or time.monotonic() > until:
            raise Failure(f"{mount.name} did not come up: {mount.with_suffix('.log').read_text(errors='replace')}")
        time.sleep(0.02)


# ---- what goes on after close --------------------------------------------------------------------

def figures_of(connection):
    """The manager's Prometheus metrics without labels: {name: value}."""
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#") if "{" not in name}


def watch():
    """Runs on the manager's host. Each input line gives the total of bytes to be copied by then. Prints when
    they were copied and no chunk lacked copies. Ends if that takes longer than COPYING_S_MAX seconds."""
    connection = http.client.HTTPConnection(*METRICS, timeout=10)
    print("connected", flush=True)
    for line in sys.stdin:
        until = time.monotonic() + COPYING_S_MAX
        figures = figures_of(connection)
        while figures["stdchk_copies_missing_chunks"] > 0 or figures[COPIED] < int(line):
            if time.monotonic() > until:
                sys.exit(f"{figures[COPIED]:.0f} of {line.strip()} bytes are copied after {COPYING_S_MAX} s")
            time.sleep(POLL_S)
            figures = figures_of(connection)
        print(json.dumps({"now": time.monotonic(), "copied": figures[COPIED]}), flush=True)


@contextlib.contextmanager
def copying(net, bytes_of_an_image):
    """Yields a function that waits until all copies of one more image of each rank are made. It returns the
    moment and the number of copied bytes."""
    watcher = subprocess.Popen([*net.prefix(net.client), sys.executable, __file__, "watch"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    copied = wanted = 0

    def wait(_):
        nonlocal copied, wanted
        wanted += bytes_of_an_image
        print(wanted, file=watcher.stdin, flush=True)
        said = watcher.stdout.readline()
        if not said:
            raise Failure("the manager does not tell how many copies are missing")
        told = json.loads(said)
        now, before, copied = told["now"], copied, told["copied"]
        return now, copied - before
    try:
        watcher.stdout.readline()
        yield wait
    finally:
        watcher.kill()
        watcher.communicate()


@contextlib.contextmanager
def streaming(net, bytes_of_a_host):
    with net.mesh(bytes_of_a_host) as send_once:
        yield lambda _: (send_once(), bytes_of_a_host * HOSTS)


@contextlib.contextmanager
def resting():
    def wait(closed):
        time.sleep(max(0.0, closed + ALONE_S - time.monotonic()))
        return closed + ALONE_S, 0
    yield wait


def beside(case, net, sizes):
    if case.streams:
        return streaming(net, sizes.image_bytes)
    return resting() if case.quiet else copying(net, (case.copies - 1) * HOSTS * sizes.image_bytes)


# ---- the program ---------------------------------------------------------------------------------

def write_agent(folder, net):
    """Writes the program that starts Open MPI's daemon on a host. Each host gets its own name, because the
    daemon names folders in /tmp by it."""
    agent = folder / "agent"
    cases = "".join(f"  {address}) net=/proc/{holder.pid}/ns/net name=host{i} ;;\n"
                    for i, (address, holder) in enumerate(zip(net.addresses(), net.hosts)))
    agent.write_text(f'#!/bin/sh\ncase $1 in\n{cases}esac\nshift\n'
                     'exec nsenter --net="$net" unshare --uts -- sh -c "hostname $name; $*"\n')
    agent.chmod(0o755)
    return agent


class Program:
    """halo-ranks with one rank on each host; its messages use the hosts' links.

    Errors: Failure when its output is not as expected; it is then ended with all its processes.
    """

    def __init__(self, bin_dir, folder, net, sizes, mounts):
        self.net, self.over, self.said = net, folder / "over.", folder / "ranks.err"
        self.before = net.processes()
        settings = {"plm": "rsh", "plm_rsh_agent": write_agent(folder, net), "plm_rsh_no_tree_spawn": 1, "pml": "ob1",
                    "btl": "tcp,self", "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0"}
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("OMPI_", "PMI", "PBS_", "SLURM_"))} | {"TMPDIR": str(folder)}
        with open(self.said, "wb") as errors:
            self.process = subprocess.Popen(
                [*net.prefix(net.client), "mpirun", "--allow-run-as-root", "-n", str(HOSTS), "--bind-to", "none",
                 "--host", ",".join(f"{address}:1" for address in net.addresses()),
                 *(str(word) for name, value in settings.items() for word in ("--mca", name, value)),
                 bin_dir / "halo-ranks", "--bytes", f"{sizes.image_mib}M", "--message", f"{sizes.message_mib}M",
                 "--images", str(sizes.images), "--compute", str(sizes.compute_ms), "--after", str(sizes.steps_after),
                 mounts, self.over],
                stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        self.limit = threading.Timer(TRIAL_S_MAX, self.process.kill)
        self.limit.start()

    def tells(self, what):
        """Returns the program's next output line, which must contain the key `what`."""
        line = self.process.stdout.readline()
        if not line.startswith("{") or what not in (told := json.loads(line)):
            raise Failure(f"halo-ranks ended, or told something else than {what}: {line}{self.said.read_text(errors='replace')}")
        return told

    def is_over(self, image):
        pathlib.Path(f"{self.over}{image}").touch()

    def end(self):
        """Returns the program's exit status. Kills the program if it runs too long."""
        self.limit.cancel()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(20)
        self.kill()
        return self.process.wait(20)

    def kill(self):
        self.limit.cancel()
        self.process.kill()
        self.process.wait()
        for number in self.net.processes() - self.before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


@contextlib.contextmanager
def program(*arguments):
    one = Program(*arguments)
    try:
        yield one
        if one.end() != 0:
            raise Failure(f"halo-ranks has failed: {one.said.read_text(errors='replace')}")
    except BaseException:
        one.kill()
        raise


# ---- what is measured ----------------------------------------------------------------------------

@dataclasses.dataclass
class Trial:
    """The results of a run of the program: its images, and the activity after each image."""

    # {part: seconds of each step}
    meanwhile: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    after: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    # for each image, the seconds from close to the activity's end
    seconds: list = dataclasses.field(default_factory=list)
    bytes_count: int = 0  # bytes moved by the activity
    steps: int = 0
    taken: float = 0.0

    def add(self, closed, over, moved, told):
        """Adds an image's steps. Leaves out steps that only partly overlap the activity."""
        for step in told["steps"]:
            if step["began"] >= over:
                where = self.after
            elif step["began"] >= closed and step["exchanged"] <= over:
                where = self.meanwhile
            else:
                continue
            where[COMPUTING].append(step["computing_s"])
            where[REDUCTION].append(step["reduced"] - step["computed"])
            where[COMMUNICATING].append(step["exchanged"] - step["computed"])
        self.seconds.append(over - closed)
        self.bytes_count += moved
        self.steps += len(told["steps"])
        self.taken = min(self.taken or told["taken"], told["taken"])

    def check(self, case):
        for name, steps in (("while it goes on", self.meanwhile), ("after it", self.after)):
            if len(steps[COMMUNICATING]) < STEPS_LEAST:
                raise Failure(f"{case.name}: {len(steps[COMMUNICATING])} steps {name} are too few")

    def median(self, part, when):
        return statistics.median(getattr(self, when)[part])

    def ratio(self, part):
        return self.median(part, "meanwhile") / self.median(part, "after")

    @property
    def rate(self):
        """Bytes a second moved beside the steps."""
        return self.bytes_count / sum(self.seconds)


def check_links(case, sizes, trial, sent):
    """Checks what each host has sent over its link: at least its messages, and its planned share of the moved
    bytes."""
    messages = 2 * sizes.message_mib * MIB * trial.steps
    if min(sent) < messages or sum(sent) < HOSTS * messages + trial.bytes_count:
        raise Failure(f"{case.name}: the hosts' links have carried {sent} bytes, which are less than messages and copies")


def check_image(path, sizes):
    with open(path, "rb") as file:
        sample = file.read(4 * MIB)
        length = file.seek(0, os.SEEK_END)
    if length != sizes.image_bytes or len(zlib.compress(sample, 6)) < 0.99 * len(sample):
        raise Failure(f"{path.name} is not whole, or can be compressed")


def try_case(bin_dir, folder, net, sizes, case):
    folder.mkdir()
    trial = Trial()
    with pool(bin_dir, folder, net, sizes.memory(case.copies), *case.options) as mounts, beside(case, net, sizes) as wait:
        before = [net.sent_bytes(number) for number in range(HOSTS)]
        with program(bin_dir, folder, net, sizes, mounts) as ranks:
            for image in range(1, sizes.images + 1):
                closed = ranks.tells("closed")["closed"]
                over, moved = wait(closed)
                ranks.is_over(image)
                trial.add(closed, over, moved, ranks.tells("steps"))
        sent = [net.sent_bytes(number) - earlier for number, earlier in enumerate(before)]
        check_image(pathlib.Path(f"{mounts}0") / "app.N0.T1", sizes)
    trial.check(case)
    check_links(case, sizes, trial, sent)
    return trial


def add_steps(report, name, part, trials):
    taken = min(trial.taken for trial in trials)
    meanwhile, after = (Series([1e3 * trial.median(part, when) for trial in trials], "ms", taken)
                        for when in ("meanwhile", "after"))
    report.add(name, meanwhile, "the same step later", after)


def add_rows(report, sizes, found, link):
    """`found`: {case's name: Trial of each round}; `link`: bytes a second of a plain TCP stream in each
    round."""
    alone, streams = found[ALONE.name], found[STREAMS.name]
    taken = min(trial.taken for trials in found.values() for trial in trials)

    def series(values, unit=""):
        return Series(list(values), unit, taken)

    def parts(trial):
        return trial.median(COMMUNICATING, "after"), trial.median(COMPUTING, "after")
    report.add("communication's share of a step", series(parts(trial)[0] / sum(parts(trial)) for trial in alone))
    report.add(f"{ALONE.name}: messages, of each host",
               series((2 * sizes.message_mib * MIB / 1e9 / parts(trial)[0] for trial in alone), "GB/s"),
               "TCP stream", series((rate / 1e9 for rate in link), "GB/s"))
    for part in (COMMUNICATING, COMPUTING):
        add_steps(report, f"{ALONE.name}: {part} in the first second", part, alone)
    for part in (COMMUNICATING, REDUCTION, COMPUTING):
        add_steps(report, f"{STREAMS.name}: {part} beside them", part, streams)
    for case in COPIES:
        trials = found[case.name]
        until = series((statistics.mean(trial.seconds) for trial in trials), "s")
        meanwhile = "while they are made"
        add_steps(report, f"{case.name}: {COMMUNICATING} {meanwhile}, redundant {until.median:.2g} s after close", COMMUNICATING,
                  trials)
        for part in (REDUCTION, COMPUTING):
            add_steps(report, f"{case.name}: {part} {meanwhile}", part, trials)
        report.add(f"{case.name}: alpha", series(trial.ratio(COMMUNICATING) for trial in trials), "alpha of TCP streams",
                   series(trial.ratio(COMMUNICATING) for trial in streams))
        bytes_each = [trial.bytes_count / len(trial.seconds) for trial in trials]
        rates = [HOSTS * case.rate_mib * MIB or trial.rate for trial in streams]
        report.add(f"{case.name}: from close until redundant", until,
                   "as many bytes at that rate" if case.rate_mib else "as many bytes by TCP streams",
                   series((count / rate for count, rate in zip(bytes_each, rates)), "s"))
        report.add(f"{case.name}: copied", series((count / MIB for count in bytes_each), "MiB"))


def measure(report, bin_dir, scratch, rounds, sizes):
    """Runs all cases in turns; each round begins with another case. Requires all that `missing` names."""
    found, link = {case.name: [] for case in CASES}, []
    with links.network(scratch, "10gbit", [LINK] * HOSTS) as net:
        for number in range(rounds):
            link.append(1e9 * net.stream(sizes.image_bytes, 1))
            turn = number % len(CASES)
            for case in CASES[turn:] + CASES[:turn]:
                found[case.name].append(try_case(bin_dir, scratch / f"{number}-{CASES.index(case)}", net, sizes, case))
    add_rows(report, sizes, found, link)


if __name__ == "__main__":
    watch()
