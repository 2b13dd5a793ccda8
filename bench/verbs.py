#!/usr/bin/env python3
"""Runs in the virtual machine with a verbs device (scripts/rdma-vm). Measures perftest's ib_write_bw, a raw
loop, the transports verbs and ofi:verbs, and a pool on each, in turns. Then measures the latency of small
writes and commits. Prints one JSON object for each turn, and one with the latencies. Usage: bench/verbs.py
BIN ROUNDS"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
COUNT, DEPTH = 128, 16  # number of writes of 1 MiB, and how many are in flight
LATENCY_IMAGES = 100  # of each round
DEVICE, ADDRESS = "rxe0", "10.77.0.1"
KINDS = ("verbs", "ofi:verbs")


def run(*command, seconds=300):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True,
                          timeout=seconds).stdout


def perftest():
    """The average GB/s over all writes."""
    command = ["ib_write_bw", "-d", DEVICE, "-s", str(MIB), "-n", str(COUNT), "-t", str(DEPTH), "-F"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2)  # it prints nothing when it listens
        (line,) = [line for line in run(*command, ADDRESS).splitlines() if line.split()[:1] == [str(MIB)]]
        return float(line.split()[3]) * MIB / 1e9
    finally:
        server.kill()
        server.wait()


def transport(programs, kind):
    """Returns {measure: {what: figure}}, where `what` is the transport or the raw loop."""
    found = json.loads(run(programs / "rma-bench", "--transport", kind, "--bytes", f"{COUNT}M", "--rounds", 1))
    return {measure: {what: values[0] for what, values in found[measure].items()}
            for measure in ("gb_per_s", "writer_cpu_s_per_gb", "target_cpu_s_per_gb")}


def clients(programs, kind, state, *arguments):
    return json.loads(run(programs / "clients-bench", state, "--transport", kind, *arguments, seconds=600))


def image(programs, kind, state):
    found = clients(programs, kind, state, "--clients", 1, "--size", f"{COUNT}M", "--rounds", 1)
    return {measure: found[measure][0]
            for measure in ("gb_per_s", "client_cpu_s_per_gb", "benefactor_cpu_s_per_gb")}


@contextlib.contextmanager
def pool(programs, folder, kind):
    mount, state = (folder / f"{what}-{kind}".replace(":", "-") for what in ("mnt", "state"))
    run(programs / "stdchk", "up", "--mount", mount, "--state", state, "--benefactors", 1, "--memory", "320M",
        "--transport", kind, "--naming", "off")
    try:
        yield state
    finally:
        run(programs / "stdchk", "down", mount)


def main():
    programs, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        states = {kind: stack.enter_context(pool(programs, pathlib.Path(folder), kind)) for kind in KINDS}
        for _ in range(rounds):
            print(json.dumps({"taken": time.time(), "perftest_gb_per_s": perftest(),
                              "transport": {kind: transport(programs, kind) for kind in KINDS},
                              "image": {kind: image(programs, kind, states[kind]) for kind in KINDS}}), flush=True)
        print(json.dumps({"latency": {kind: clients(programs, kind, states[kind], "--latency", LATENCY_IMAGES,
                                                    "--rounds", rounds) for kind in KINDS}}), flush=True)


if __name__ == "__main__":
    main()
