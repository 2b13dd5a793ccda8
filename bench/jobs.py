"""Measures jobs in a Slurm cluster of namespaces. Measures: start and end of pools, the rate of many MPI
ranks that write at once, the drain and its cost to writers, restarts. Used by bench/run."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from report import Aim, Failure, Series

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "scripts" / "slurm-cluster"
PROGRAMS = ("slurmctld", "slurmd", "munged", "ip", "mpirun")
NODES = (4, 16, 64)
LEFT_MIB = (0, 64, 256)
RANKS = (4, 16, 64)
READERS = 8
RESTART_NODES, RANK_MIB = 4, 64
POOL_IMAGES = 28  # number of images that the memory holds under the slowed-down application
MEASURED_IMAGES = 8
MIB = 1 << 20

DRAINED = "drained meanwhile"
BEGAN_ABOVE = "writes that began with more than half of the memory not drained, share"


@dataclasses.dataclass
class Fill:
    """The state of the pool before each measured write: the number of images that are not drained."""

    name: str
    not_drained: int


# A drain yields to writers while at most half of the memory is not drained.
FILLS = (Fill("below half", 0), Fill("above half", 17))

TARGET_MIB = 400  # MiB/s of the file system that is drained to, for writing and for reading
THROTTLE = pathlib.Path("/sys/fs/cgroup/blkio")

AIMS = {  # rows that must appear
    "write and drain": Aim(least=0.90),
    "below half: write, while it is drained": Aim(least=0.91),  # 10 % longer
}
TO_DISK = "write and drain, to the disk"
RATIOS = ([TO_DISK] + [f"{ranks} ranks at a barrier" for ranks in RANKS]
          + [f"{fill.name}: {what}" for fill in FILLS for what in ("write, while it is drained", DRAINED)])
FIGURES = ([f"{nodes} nodes: {what}" for nodes in NODES
            for what in ("`up --job`", "the prolog makes the job's start later by", "`down`")]
           + [f"epilog, {mib} MiB written last, *" for mib in LEFT_MIB]
           + [f"{fill.name}: {BEGAN_ABOVE}" for fill in FILLS]
           + [f"restart of {ranks}, *, from {where}" for ranks in (f"{READERS} ranks", f"{RESTART_NODES} nodes")
              for where in ("memory", "the drained set")]
           + ["`stage-in` of *"])


def missing(bin_dir):
    """Names what the section needs and this machine lacks."""
    found = [] if os.geteuid() == 0 else ["the rights of root"]
    found += [name for name in PROGRAMS if shutil.which(name) is None]
    if not (THROTTLE / "blkio.throttle.write_bps_device").exists():
        found.append("the control groups of version 1 that limit a device's rate")
    return found + ([] if (bin_dir / "barrier-ranks").exists() else ["barrier-ranks, which is built with an MPI"])


def call(*command, timeout=300, **options):
    return subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, timeout=timeout, **options)


def run(*command, **options):
    done = call(*command, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_file(path, bytes_count):
    """Writes random data; returns the seconds until close() returned."""
    data = os.urandom(MIB) + os.urandom(4096)
    started = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for at in range(0, bytes_count, MIB):
            # Each block is another part of the random bytes, with its own number in front.
            skip = (at // MIB * 61) % 4096
            file.write(at.to_bytes(8, "little") + data[skip:skip + MIB - 8])
    return time.monotonic() - started


def is_over(asked):
    """True when squeue's answer shows that a job and all its epilogs have ended. A controller that does not answer
    shows nothing: False."""
    return not asked.stdout.strip() and (asked.returncode == 0 or "Invalid job id" in asked.stderr)


class Cluster:
    def __init__(self, nodes, bin_dir):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stdchk-bench-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.environment = dict(os.environ, STDCHK_CLUSTER=str(self.folder / "cluster"),
                                PATH=f"{bin_dir}:{os.environ['PATH']}")
        for name in ("prolog", "epilog", "task-prolog"):
            program = self.folder / name
            program.write_text(f"#!/bin/bash\nSTDCHK_BIN={bin_dir} exec {ROOT}/scripts/slurm/{name}\n")
            program.chmod(0o755)
            self.environment[f"STDCHK_{name.replace('-', '_').upper()}"] = str(program)
        self.place = {"env": self.environment, "cwd": self.folder}
        try:
            run(CLUSTER, "up", nodes, **self.place)
        except BaseException:
            self.end()
            raise

    def job(self, nodes, script, *options):
        """Runs a job; returns its output after all its epilogs, and their duration after the script's end."""
        path, output = self.folder / "job.sh", self.folder / "job.out"
        output.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\ncd {self.folder}\n{script}\necho end $(date +%s.%N)\n")
        number = run(CLUSTER, "run", "sbatch", "--parsable", f"--nodes={nodes}", "--output", output, "--chdir", self.folder,
                     *options, path, **self.place).strip()
        until = time.monotonic() + 300
        while not is_over(call(CLUSTER, "run", "squeue", "--noheader", "--jobs", number, **self.place)):
            if time.monotonic() > until:
                raise Failure(f"job {number} does not end")
            time.sleep(0.05)
        text = output.read_text()
        end = re.search(r"^end (\S+)", text, re.MULTILINE)
        if not end:
            raise Failure(f"a job has failed: {text}")
        return text, time.time() - float(end.group(1))

    def end(self):
        call(CLUSTER, "down", **self.place)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def cluster(nodes, bin_dir):
    one = Cluster(nodes, bin_dir)
    try:
        yield one
    finally:
        one.end()


def up_and_down(report, bin_dir, rounds):
    """Measures the start of a pool, from the line in the job script until every mount works, and the end of the pool."""
    for nodes in NODES:
        up, down, prolog = [], [], []
        with cluster(nodes, bin_dir) as slurm:
            for _ in range(rounds):
                text, _ = slurm.job(nodes, """
                    echo begin $(date +%s.%N)
                    stdchk up --job --memory 16M --mount /tmp/pool >/dev/null || exit 1
                    echo up $(date +%s.%N)
                    stdchk down /tmp/pool >/dev/null || exit 1""")
                times = {word: float(when) for word, when in re.findall(r"^(\w+) (\d+\.\d+)$", text, re.MULTILINE)}
                up.append(times["up"] - times["begin"])
                down.append(times["end"] - times["up"])
                # Measures how much later a job starts because of the site's prolog.
                starts = []
                for options in ((), ("--comment", "stdchk=mem=16M")):
                    submitted = time.time()
                    text, _ = slurm.job(nodes, "echo first $(date +%s.%N) $STDCHK_MOUNT", *options)
                    found = re.search(r"first (\S+)( \S+)?", text)
                    if options and not found.group(2):
                        raise Failure(f"no pool: {text}")
                    starts.append(float(found.group(1)) - submitted)
                prolog.append(starts[1] - starts[0])
        report.add(f"{nodes} nodes: `up --job`", Series(up, "s"))
        report.add_difference(f"{nodes} nodes: the prolog makes the job's start later by", Series(prolog, "s"))
        report.add(f"{nodes} nodes: `down`", Series(down, "s"))


def epilog(report, bin_dir, rounds, rate_mib=32):
    with cluster(4, bin_dir) as slurm:
        for mib in LEFT_MIB:
            seconds = []
            for _ in range(rounds):
                shutil.rmtree(slurm.folder / "drained", ignore_errors=True)
                text, took = slurm.job(4, f"""
                    [ {mib} = 0 ] || head -c {mib}M /dev/urandom >$STDCHK_MOUNT/image""", "--comment",
                    f"stdchk=mem=256M,drain=drained,drain-rate={rate_mib}M")
                if mib and (slurm.folder / "drained" / "image").stat().st_size != mib * MIB:
                    raise Failure("the epilog has not drained everything")
                seconds.append(took)
            report.add(f"epilog, {mib} MiB written last, {4 * rate_mib} MiB/s", Series(seconds, "s"))


@contextlib.contextmanager
def pool(bin_dir, scratch, *options, memory_mib=512):
    mount, state = scratch / "mnt", scratch / "state"
    mount.mkdir(exist_ok=True)
    run(bin_dir / "stdchk", "up", "--benefactors", 4, "--memory", f"{memory_mib}M", "--mount", mount, "--state", state,
        "--naming", "off", *options)
    try:
        yield mount
    finally:
        run(bin_dir / "stdchk", "down", mount)


@contextlib.contextmanager
def limited(folder, mib):
    """A file system of `mib` MiB on a device limited to TARGET_MIB MiB/s for writing and for reading."""
    image = folder.with_suffix(".image")
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(mib * MIB)
    with contextlib.ExitStack() as undo:
        undo.callback(image.unlink)
        device = run("losetup", "--find", "--show", image).strip()
        undo.callback(run, "losetup", "--detach", device)
        run("mkfs.ext4", "-q", device)
        run("mount", device, folder)
        undo.callback(run, "umount", folder)
        number = pathlib.Path("/sys/class/block", pathlib.Path(device).name, "dev").read_text().strip()
        for what in ("read", "write"):
            limit = THROTTLE / f"blkio.throttle.{what}_bps_device"
            limit.write_text(f"{number} {TARGET_MIB * MIB}")
            undo.callback(limit.write_text, f"{number} 0")
        yield folder


def drop_caches():
    run("sync")
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def parallel_dd(source, target, mib, writers=4):
    """The rate of one dd per benefactor that write and sync at once."""
    target.mkdir()
    started = time.monotonic()
    running = [subprocess.Popen(["dd", f"if={source}", f"of={target}/{i}", "bs=1M", f"count={mib // writers}",
                                 "conv=fsync", "status=none"]) for i in range(writers)]
    if any([each.wait() for each in running]):
        raise Failure("dd has failed")
    took = time.monotonic() - started
    shutil.rmtree(target)
    return mib * MIB / 1e9 / took


def drain_rate(bin_dir, scratch, target, rounds, size_mib):
    """Measures the pool and dd in turns on one file system. The pool's time is from the first write until all
    is drained and was read back. The drain does not yield: no other writer exists."""
    ours, theirs = [], []
    source = scratch / "source"
    write_file(source, size_mib // 4 * MIB)
    drain = target / "drained"
    for _ in range(rounds + 1):
        drop_caches()
        source.read_bytes()
        theirs.append(parallel_dd(source, target / "dd", size_mib))
        drop_caches()
        with pool(bin_dir, scratch, "--drain", drain, "--drain-yields", "off", memory_mib=size_mib // 2) as mount:
            started = time.monotonic()
            for rank in range(8):
                write_file(mount / f"app.N{rank}.T1", size_mib // 8 * MIB)
            run(bin_dir / "stdchk", "drain", "--wait", mount)
            ours.append(size_mib * MIB / 1e9 / (time.monotonic() - started))
            if len(list(drain.glob("app.N*.T1"))) != 8:
                raise Failure("not all is drained")
        shutil.rmtree(drain)
    source.unlink()
    return Series(ours[1:], "GB/s"), "4 dd at once, with fsync", Series(theirs[1:], "GB/s")


def image_mib(size_mib):
    """The image size of the slowed-down application."""
    return max(32, size_mib // 8)


def bytes_below(folder):
    """The bytes of all files, including files that are not yet renamed to their final names."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it was renamed meanwhile
            total += path.lstat().st_blocks * 512
    return total


def not_drained(bin_dir, mount):
    """The bytes that are not drained, and whether they exceed half of the memory: then a drain must not
    yield."""
    figures = json.loads(run(bin_dir / "stdchk", "status", "--json", mount))["pool"]
    return figures["drain_pending_bytes"], 2 * figures["drain_pending_bytes"] > figures["total_bytes"]


@dataclasses.dataclass
class Written:
    """The measurements of an application that repeats two steps: it writes an image, and pauses as long as the write took."""

    seconds: list = dataclasses.field(default_factory=list)
    # for each write: began with more than half of the memory undrained
    began_above: list = dataclasses.field(default_factory=list)
    # Totals from the first measured write to the end of the last pause, including images that filled the
    # memory up.
    bytes_count: int = 0
    drained_bytes: int = 0


class Application:
    def __init__(self, mount, size_mib):
        self.mount, self.bytes_count, self.images = mount, size_mib * MIB, 0

    def write(self):
        self.images += 1
        return write_file(self.mount / f"app.N0.T{self.images}", self.bytes_count)

    def fill_up(self, bin_dir, fill):
        """Writes until the wanted number of images is not drained. Returns whether this exceeds half of the
        memory."""
        pending, _ = not_drained(bin_dir, self.mount)
        while pending < fill.not_drained * self.bytes_count:
            self.write()
            pending += self.bytes_count
        return not_drained(bin_dir, self.mount)[1]


def write_and_pause(bin_dir, scratch, fill, size_mib, drain=None):
    written = Written()
    options = ("--drain", drain) if drain else ()
    with pool(bin_dir, scratch, *options, memory_mib=size_mib * POOL_IMAGES // 4) as mount:
        application = Application(mount, size_mib)
        for _ in range(max(1, fill.not_drained)):
            application.write()
        images_before, drained_before = application.images, bytes_below(drain) if drain else 0
        for _ in range(MEASURED_IMAGES):
            if drain:
                written.began_above.append(application.fill_up(bin_dir, fill))
            written.seconds.append(application.write())
            time.sleep(written.seconds[-1])
        written.bytes_count = (application.images - images_before) * size_mib * MIB
        if drain:
            written.drained_bytes = bytes_below(drain) - drained_before
            if written.drained_bytes == 0:
                raise Failure(f"{fill.name}: nothing was drained meanwhile")
    if drain:
        shutil.rmtree(drain)
    return written


def slowdown(report, bin_dir, scratch, target, rounds, size_mib):
    """Writes with and without a drain in turns, into equally full pools."""
    measured = MEASURED_IMAGES * size_mib * MIB / 1e9
    for fill in FILLS:
        alone, drained = [], []
        for _ in range(rounds + 1):
            alone.append(write_and_pause(bin_dir, scratch, fill, size_mib))
            drained.append(write_and_pause(bin_dir, scratch, fill, size_mib, target / "drained"))
        del alone[0], drained[0]  # the first round only warms caches up
        began_above = [statistics.mean(each.began_above) for each in drained]
        if fill.not_drained and min(began_above) < 0.5:
            raise Failure(f"{fill.name}: the drain is as fast as the writes")
        rates, rates_alone = ([measured / sum(each.seconds) for each in found] for found in (drained, alone))
        report.add(f"{fill.name}: write, while it is drained", Series(rates, "GB/s"), "without a drain", Series(rates_alone, "GB/s"))
        report.add(f"{fill.name}: {DRAINED}", Series([each.drained_bytes / 1e9 for each in drained], "GB"), "written",
                   Series([each.bytes_count / 1e9 for each in drained], "GB"))
        report.add(f"{fill.name}: {BEGAN_ABOVE}", Series(began_above, ""))


def barrier(report, bin_dir, scratch, rounds, size_mib):
    direct = scratch / "direct"
    direct.mkdir()
    for ranks in RANKS:
        with pool(bin_dir, scratch, memory_mib=size_mib // 2) as mount:
            said = run("mpirun", "--oversubscribe", "--allow-run-as-root", "-n", ranks, bin_dir / "barrier-ranks",
                       "--bytes", f"{size_mib}M", "--rounds", rounds, "--fsync", direct, mount, direct)
        found = {line["directory"]: Series(line["values"], "GB/s", line["taken"])
                 for line in map(json.loads, said.splitlines())}
        report.add(f"{ranks} ranks at a barrier", found[str(mount)], "to the disk, with fsync", found[str(direct)])


def restart(report, bin_dir, scratch, rounds, size_mib, ranks=READERS):
    found = {"memory": [], "drained set": [], "stage-in": []}
    drain = scratch / "drained"
    for _ in range(rounds):
        with pool(bin_dir, scratch, "--drain", drain, "--policy", f"images={ranks}", memory_mib=size_mib // 2) as mount:
            for rank in range(ranks):
                write_file(mount / f"app.N{rank}.T1", size_mib // ranks * MIB)
            run(bin_dir / "stdchk", "drain", "--wait", mount)
            found["memory"].append(json.loads(run(bin_dir / "stdchk", "restart-test", "--json", mount))["seconds"])
        drop_caches()
        with pool(bin_dir, scratch, "--drain", drain, "--policy", f"images={ranks}", memory_mib=size_mib // 2) as mount:
            found["drained set"].append(json.loads(run(bin_dir / "stdchk", "restart-test", "--json", mount))["seconds"])
        drop_caches()
        with pool(bin_dir, scratch, memory_mib=size_mib // 2) as mount:
            loaded = json.loads(run(bin_dir / "stdchk", "stage-in", "--json", "--to", mount, drain))
            found["stage-in"].append(loaded["seconds"])
        shutil.rmtree(drain)
    report.add(f"restart of {ranks} ranks, {size_mib} MiB, from memory", Series(found["memory"], "s"))
    report.add(f"restart of {ranks} ranks, {size_mib} MiB, from the drained set", Series(found["drained set"], "s"))
    report.add(f"`stage-in` of {size_mib} MiB", Series(found["stage-in"], "s"))


def restart_of_nodes(report, bin_dir, rounds):
    """Measures restarts of ranks that load on their own nodes, in the job that wrote the images and in the next job.
    The next job has a new pool."""
    up = f"stdchk up --job --memory {2 * RANK_MIB}M --mount /tmp/pool --drain drained --policy images={RESTART_NODES} >/dev/null || exit 1"
    load = "loaded=$(stdchk restart-test --job --json /tmp/pool) || exit 1; echo loaded $loaded"
    found = {"memory": [], "the drained set": []}
    with cluster(RESTART_NODES, bin_dir) as slurm:
        for _ in range(rounds):
            shutil.rmtree(slurm.folder / "drained", ignore_errors=True)
            for where, before in (("memory", f"srun bash -c 'head -c {RANK_MIB}M /dev/urandom >/tmp/pool/app.N$SLURM_PROCID.T1'"),
                                  ("the drained set", "")):
                drop_caches()
                text, _ = slurm.job(RESTART_NODES, f"""
                    {up}
                    {before}
                    {load}
                    stdchk down --drain /tmp/pool >/dev/null || exit 1""", "--ntasks-per-node=1")
                timed = json.loads(re.search(r"^loaded (.*)$", text, re.MULTILINE).group(1))
                if (timed["nodes"], timed["bytes"]) != (RESTART_NODES, RESTART_NODES * RANK_MIB * MIB):
                    raise Failure(f"not all nodes have loaded their image: {text}")
                found[where].append(timed["seconds"])
    for where, seconds in found.items():
        report.add(f"restart of {RESTART_NODES} nodes, {RESTART_NODES * RANK_MIB} MiB, from {where}", Series(seconds, "s"))


def measure(report, bin_dir, scratch, rounds, cluster_rounds, size_mib):
    """Runs all measurements. Requires all that `missing` names."""
    up_and_down(report, bin_dir, cluster_rounds)
    epilog(report, bin_dir, cluster_rounds)
    barrier(report, bin_dir, scratch, rounds, size_mib)
    report.add(TO_DISK, *drain_rate(bin_dir, scratch, scratch, rounds, size_mib))
    with limited(scratch / "target", 6 * size_mib) as target:
        report.add("write and drain", *drain_rate(bin_dir, scratch, target, rounds, 2 * size_mib))
        slowdown(report, bin_dir, scratch, target, rounds, image_mib(size_mib))
    restart(report, bin_dir, scratch, rounds, size_mib)
    restart_of_nodes(report, bin_dir, cluster_rounds)
