#!/usr/bin/env python3
"""Measures clones of processes and machines: bench/fork.py [--mib N] [--clones 1,8,32] [--rounds N] [--vm] [--json]

For a process: the pause of the parent in sf_clone, and the time until each clone runs. The ceiling is a fork(2) of the same
process. Memory: the sum of the proportional shares (Pss) of the parent and all its clones, after each clone has read 1 % of
its memory. "merged": after sf_prepare. Times are in milliseconds: the median of all rounds, and the worst.

For a machine (--vm): the same figures of `stdchk vm fork --json`, for a guest of scripts/fork-guest. Needs root.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))


def pss_mib(pids):
    total = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


def plain_fork_ms():
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    ended = time.monotonic()
    os.waitpid(pid, 0)
    return (ended - began) * 1e3


def one_round(fork, memory, clones):
    began = time.monotonic()
    ticket = fork.request_ticket(clones)
    asked = time.monotonic()
    me = fork.clone(ticket)
    if me:
        up = (time.monotonic() - asked) * 1e3
        # Clones wait until all of them live, because the memory of all is measured together.
        total = sum(memory[:: 4096 * 100])
        time.sleep(1.5)
        fork.exit((up, total))
    pause = (time.monotonic() - asked) * 1e3
    time.sleep(1.2)
    # Clones are in the host's list of processes, too: they have this program's name.
    own = [int(pid) for pid in subprocess.run(["pgrep", "-f", pathlib.Path(__file__).name], capture_output=True, text=True)
           .stdout.split()]
    alive = [pid for pid in own if os.path.exists(f"/proc/{pid}/smaps_rollup")]
    memory_mib = pss_mib(alive)
    results = fork.join(ticket)
    assert len({total for _, total in results.values()}) == 1
    ups = sorted(up for up, _ in results.values())
    return {"ticket": (asked - began) * 1e3, "pause": pause, "first": ups[0], "last": ups[-1], "pss_mib": memory_mib}


def processes(arguments):
    sys.path.insert(0, str(ROOT / "python"))
    from stdchk import fork

    memory = bytearray(arguments.mib << 20)
    for at in range(0, len(memory), 4096):
        memory[at] = at >> 12 & 255
    found = {"mib": arguments.mib, "cases": []}
    for merged in (False, True):
        if merged:
            began = time.monotonic()
            fork.prepare()
            found["prepare_ms"] = (time.monotonic() - began) * 1e3
        for clones in arguments.clones:
            # Each round has its own ceiling.
            rounds = [{"fork": plain_fork_ms(), **one_round(fork, memory, clones)} for _ in range(arguments.rounds)]
            found["cases"].append({"merged": merged, "clones": clones, "rounds": rounds})
    if arguments.json:
        return print(json.dumps(found | {"taken": time.time()}))
    print(f"{arguments.mib} MiB, sf_prepare: {found['prepare_ms']:.0f} ms")
    for case in found["cases"]:
        print(f"{'merged' if case['merged'] else 'plain '} {case['clones']:3} clones: " + ", ".join(
            f"{name} {statistics.median(r[name] for r in case['rounds']):.0f} (worst {max(r[name] for r in case['rounds']):.0f})"
            for name in case["rounds"][0]))


def machines(arguments):
    guest = subprocess.run([ROOT / "scripts" / "fork-guest", guest_program()], capture_output=True, text=True, check=True)
    guest = pathlib.Path(guest.stdout.strip())
    for clones in arguments.clones:
        rounds = [machine_round(guest, arguments.mib, clones) for _ in range(arguments.rounds)]
        print(f"machine of {arguments.mib} MiB, {clones:3} clones: " + ", ".join(
            f"{name} {statistics.median(r[name] for r in rounds):.0f} (worst {max(r[name] for r in rounds):.0f})"
            for name in rounds[0]))


def guest_program():
    return (BIN / "stdchk-vm").resolve().parents[1] / "tests" / "integration" / "fork-guest"


def machine_round(guest, mib, clones):
    with tempfile.TemporaryDirectory() as folder:
        vm = [BIN / "stdchk-vm"]
        console = pathlib.Path(folder, "console-0")
        subprocess.run(
            [*vm, "run", "--folder", folder + "/vms", "--slots", "64", "m", "--", "qemu-system-x86_64", "-accel",
             "tcg,thread=multi,tb-size=32", "-m", f"{mib}M", "-nodefaults", "-no-user-config", "-display", "none",
             "-kernel", guest / "vmlinuz", "-initrd", guest / "initrd", "-append",
             f"console=ttyS0 quiet mitigations=off tsc=reliable no_timer_check mib={mib // 2}", "-chardev",
             f"file,id=c,path={folder}/console-{{id}},append=on", "-serial", "chardev:c"], check=True)
        try:
            while not console.exists() or "ready" not in console.read_text():
                time.sleep(0.1)
            answer = subprocess.run([*vm, "fork", "--folder", folder + "/vms", "--json", "-n", str(clones), "m"],
                                    capture_output=True, text=True, check=True)
            figures = json.loads(answer.stdout)
            listed = subprocess.run([*vm, "list", "--folder", folder + "/vms", "--json"], capture_output=True, text=True,
                                    check=True)
            pids = [machine["pid"] for machine in json.loads(listed.stdout)]
            return {"start": figures["start_s"] * 1e3, "pause": figures["paused_s"] * 1e3,
                    "last": figures["loaded_s"] * 1e3, "descriptor_kib": figures["descriptor_bytes"] / 1024,
                    "pss_mib": pss_mib(pids)}
        finally:
            subprocess.run([*vm, "kill", "--folder", folder + "/vms", "m"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--clones", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vm", action="store_true")
    parser.add_argument("--json", action="store_true", help="print JSON; not with --vm")
    arguments = parser.parse_args()
    if arguments.vm:
        return machines(arguments)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(STDCHK_FORKD=folder + "/run/socket", STDCHK_FORK_LIBRARY=str(
            (BIN / "stdchk-forkd").resolve().parent / "libstdchk_fork.so.0"))
        daemon = subprocess.Popen([BIN / "stdchk-forkd", "--socket", folder + "/run/socket", "--ready-file",
                                   folder + "/ready", "--slots", "64", "--clone-memory", "16M", "--log-level", "warning"])
        while not os.path.exists(folder + "/ready"):
            time.sleep(0.02)
        processes(arguments)
        daemon.terminate()
        daemon.wait()


main()
