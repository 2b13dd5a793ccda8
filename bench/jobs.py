"""Jobs: how long pools take to come and go in a Slurm cluster of namespaces, what the drain reaches and what it costs
who writes meanwhile, and how long a restart takes. Used by bench/run."""

import contextlib
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
NODES = (4, 16, 64)
LEFT_MIB = (0, 64, 256)
MIB = 1 << 20


def run(*command, check=True, timeout=300, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options)
    if check and done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_file(path, bytes_count):
    """Random data; returns how long it took until close() had returned."""
    data = os.urandom(MIB) + os.urandom(4096)
    started = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for at in range(0, bytes_count, MIB):
            # Each block is another part of the random bytes, with its own number in front.
            skip = (at // MIB * 61) % 4096
            file.write(at.to_bytes(8, "little") + data[skip:skip + MIB - 8])
    return time.monotonic() - started


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
        self.call("up", nodes)

    def call(self, *words, check=True):
        return run(CLUSTER, *words, check=check, env=self.environment, cwd=self.folder)

    def job(self, nodes, script, *options):
        """The output of a job, when all its epilogs are over, and how long those took after the script's end."""
        path, output = self.folder / "job.sh", self.folder / "job.out"
        output.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\ncd {self.folder}\n{script}\necho end $(date +%s.%N)\n")
        number = self.call("run", "sbatch", "--parsable", f"--nodes={nodes}", "--output", output, "--chdir", self.folder,
                           *options, path).strip()
        until = time.monotonic() + 300
        while self.call("run", "squeue", "--noheader", "--jobs", number, check=False).strip():
            if time.monotonic() > until:
                raise Failure(f"job {number} does not end")
            time.sleep(0.05)
        text = output.read_text()
        end = re.search(r"^end (\S+)", text, re.MULTILINE)
        if not end:
            raise Failure(f"a job has failed: {text}")
        return text, time.time() - float(end.group(1))

    def end(self):
        self.call("down", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def cluster(nodes, bin_dir):
    one = Cluster(nodes, bin_dir)
    try:
        yield one
    finally:
        one.end()


def up_and_down(report, bin_dir, rounds, nodes_most):
    """From the line in the job script until every mount can be used, and back."""
    for nodes in (each for each in NODES if each <= nodes_most):
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
                # What the site's prolog adds to a job's start.
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
        report.add(f"{nodes} nodes: the prolog makes the job's start later by", Series(prolog, "s"))
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


def drop_caches():
    run("sync")
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def parallel_dd(source, target, mib, writers=4):
    """What as many programs as benefactors write and sync, at the same time."""
    target.mkdir()
    started = time.monotonic()
    running = [subprocess.Popen(["dd", f"if={source}", f"of={target}/{i}", "bs=1M", f"count={mib // writers}",
                                 "conv=fsync", "status=none"]) for i in range(writers)]
    if any([each.wait() for each in running]):
        raise Failure("dd has failed")
    took = time.monotonic() - started
    shutil.rmtree(target)
    return mib * MIB / 1e9 / took


def drain_rate(report, bin_dir, scratch, rounds, size_mib):
    """In turns, onto one file system; from the first write into the pool until all is drained. A drain that does not
    yield: nobody else writes that it would hinder."""
    ours, theirs = [], []
    source = scratch / "source"
    write_file(source, size_mib // 4 * MIB)
    drain = scratch / "drained"
    for _ in range(rounds + 1):
        drop_caches()
        source.read_bytes()
        theirs.append(parallel_dd(source, scratch / "dd", size_mib))
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
    report.add("write and drain", Series(ours[1:], "GB/s"), "4 dd at once, with fsync", Series(theirs[1:], "GB/s"), Aim(least=0.90))


def slowdown(report, bin_dir, scratch, rounds, size_mib):
    """An application that writes an image, computes for as long, and writes the next: the rate of its writes."""
    rates = {}
    for name, options in (("no drain", ()), ("drain", ("--drain", scratch / "drained"))):
        rates[name] = []
        for _ in range(rounds + 1):
            with pool(bin_dir, scratch, *options, memory_mib=size_mib * 3) as mount:
                seconds = []
                for timestep in range(6):
                    seconds.append(write_file(mount / f"app.N0.T{timestep}", size_mib * MIB))
                    time.sleep(seconds[-1])
                rates[name].append(size_mib * MIB / 1e9 / statistics.mean(seconds[1:]))
            shutil.rmtree(scratch / "drained", ignore_errors=True)
    report.add("write, while it is drained", Series(rates["drain"][1:], "GB/s"), "without a drain",
               Series(rates["no drain"][1:], "GB/s"), Aim(least=0.90))


def restart(report, bin_dir, scratch, rounds, size_mib, ranks=8):
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


def measure(report, bin_dir, scratch, rounds, size_mib, quick):
    if os.geteuid() == 0 and shutil.which("slurmctld"):
        up_and_down(report, bin_dir, min(rounds, 3), 16 if quick else 64)
        epilog(report, bin_dir, min(rounds, 3))
    else:
        report.text += " NOT RUN: the cluster (it needs root and Slurm)."
    drain_rate(report, bin_dir, scratch, rounds, size_mib)
    slowdown(report, bin_dir, scratch, rounds, size_mib // 4)
    restart(report, bin_dir, scratch, rounds, size_mib)
