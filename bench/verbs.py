#!/usr/bin/env python3
"""In the virtual machine with a verbs device (scripts/rdma-vm): perftest's ib_write_bw, the transport and a pool, in
turns. Prints one JSON object for each turn. Usage: bench/verbs.py BIN ROUNDS"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
COUNT, DEPTH = 128, 16  # writes of 1 MiB, and how many are in flight
DEVICE, ADDRESS = "rxe0", "10.77.0.1"


def run(*command, seconds=300):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True,
                          timeout=seconds).stdout


def perftest():
    """GB/s, the average over all writes."""
    command = ["ib_write_bw", "-d", DEVICE, "-s", str(MIB), "-n", str(COUNT), "-t", str(DEPTH), "-F"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2)  # it says nothing when it listens
        (line,) = [line for line in run(*command, ADDRESS).splitlines() if line.split()[:1] == [str(MIB)]]
        return float(line.split()[3]) * MIB / 1e9
    finally:
        server.kill()
        server.wait()


def transport(programs):
    found = json.loads(run(programs / "rma-bench", "--transport", "verbs", "--bytes", f"{COUNT}M", "--rounds", 1))
    return {"gb_per_s": found["gb_per_s"]["transport"][0],
            "writer_cpu_s_per_gb": found["writer_cpu_s_per_gb"]["transport"][0],
            "target_cpu_s_per_gb": found["target_cpu_s_per_gb"]["transport"][0]}


def pool(programs, state):
    found = json.loads(run(programs / "clients-bench", state, "--transport", "verbs", "--clients", 1,
                           "--size", f"{COUNT}M", "--rounds", 1))
    return {"gb_per_s": found["gb_per_s"][0], "benefactor_cpu_s_per_gb": found["benefactor_cpu_s_per_gb"][0]}


def main():
    programs, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        mount, state = pathlib.Path(folder) / "mnt", pathlib.Path(folder) / "state"
        run(programs / "stdchk", "up", "--mount", mount, "--state", state, "--benefactors", 1, "--memory", "400M",
            "--transport", "verbs", "--naming", "off")
        try:
            for _ in range(rounds):
                print(json.dumps({"perftest_gb_per_s": perftest(), "transport": transport(programs),
                                  "pool": pool(programs, state), "taken": time.time()}), flush=True)
        finally:
            run(programs / "stdchk", "down", mount)


if __name__ == "__main__":
    main()
