#!/usr/bin/env python3
"""Runs real programs on clones of a process, beside workers that are there already: bench/fork_programs.py [--clones 1,8,32] [--rounds N]

The measurement is that of the SnowFlock paper, section 5.1 (figure 5). Each worker does an equal share of a program's work.

- clones: the time from sf_request_ticket until the last clone is joined.
- zero cost: the time of the same work by processes that were forked before the clock starts.
- overhead: clones divided by zero cost, less 1, in per cent. The two take turns; the figure is the median of the rounds.

`sleep` needs no processor, so it shows the overhead of the clones alone. All workers of the other programs share this
machine's processors. Programs that are not installed are left out, and named. Needs root.
"""

import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))
sys.path.insert(0, str(ROOT / "python"))


def quiet(*words):
    subprocess.run(list(map(str, words)), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


class Sleep:
    """Each worker sleeps for two seconds."""

    needs = ()

    def __init__(self, _):
        pass

    def share(self, number, count, folder):
        time.sleep(2)


class Search:
    """Looks words up in an index of a sequence that the parent has in memory: about 300 MiB."""

    needs = ()
    QUERIES, LENGTH = 1_200_000, 12

    def __init__(self, _):
        rng = random.Random(1)
        self.text = "".join(rng.choices("ACGT", k=1 << 20))
        self.index = {}
        for at in range(len(self.text) - self.LENGTH):
            self.index.setdefault(self.text[at:at + self.LENGTH], []).append(at)

    def share(self, number, count, folder):
        rng, found = random.Random(number), 0
        for _ in range(self.QUERIES // count):
            at = rng.randrange(len(self.text) - self.LENGTH)
            found += at in self.index[self.text[at:at + self.LENGTH]]
        assert found == self.QUERIES // count


class Compile:
    """Compiles sources of this project, as a compile farm does."""

    needs = ("g++",)

    def __init__(self, _):
        self.sources = sorted((ROOT / "fork" / "library").glob("*.cpp"))

    def share(self, number, count, folder):
        for at in range(number, 32, count):
            source = self.sources[at % len(self.sources)]
            quiet("g++", "-std=c++20", "-fsyntax-only", "-I", ROOT, source)


class Render:
    """Renders a scene by POV-Ray, each worker some of its lines."""

    needs = ("povray",)
    LINES = 192

    def __init__(self, folder):
        self.scene = folder / "scene.pov"
        balls = "".join(
            f"sphere {{ <{x - 3},{y - 2},{4 + (x * y) % 3}>, 0.45 pigment {{ rgb <{x / 7},{y / 5},0.5> }} finish {{ reflection 0.3 }} }}\n"
            for x in range(7) for y in range(5))
        self.scene.write_text("camera { location <0,1,-6> look_at <0,0,4> }\nlight_source { <5,8,-6> rgb 1 }\n"
                              "plane { y, -3 pigment { checker rgb 1, rgb 0.2 } }\n" + balls)

    def share(self, number, count, folder):
        first, last = number * self.LINES // count, (number + 1) * self.LINES // count
        quiet("povray", f"+I{self.scene}", f"+O{folder}/part{number}.png", "+W256", f"+H{self.LINES}", f"+SR{first + 1}",
              f"+ER{last}", "+A0.3", "-D", "+WT1")


class Align:
    """Aligns families of sequences by ClustalW."""

    needs = ("clustalw",)
    FAMILIES = 32

    def __init__(self, folder):
        self.folder = folder
        rng = random.Random(3)
        for family in range(self.FAMILIES):
            base = rng.choices("ACDEFGHIKLMNPQRSTVWY", k=220)
            lines = []
            for member in range(12):
                changed = [rng.choice("ACDEFGHIKLMNPQRSTVWY") if rng.random() < 0.2 else c for c in base]
                lines.append(f">m{member}\n{''.join(changed)}\n")
            (folder / f"family{family}.fa").write_text("".join(lines))

    def share(self, number, count, folder):
        for family in range(number, self.FAMILIES, count):
            quiet("clustalw", f"-INFILE={self.folder}/family{family}.fa", f"-OUTFILE={folder}/aligned{family}",
                  f"-NEWTREE={folder}/tree{family}")


PROGRAMS = (Sleep, Search, Compile, Render, Align)


def by_clones(fork, program, count, folder):
    began = time.monotonic()
    ticket = fork.request_ticket(count)
    if ticket.count != count:
        sys.exit(f"only {ticket.count} of {count} clones are granted")
    me = fork.clone(ticket)
    if me:
        program.share(me - 1, count, folder)
        fork.exit(True)
    results = fork.join(ticket)
    assert len(results) == count
    return time.monotonic() - began


def by_ready_workers(program, count, folder):
    listening, word = os.pipe()
    workers = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(word)
            os.read(listening, 1)  # the end of the pipe is the word
            program.share(number, count, folder)
            os._exit(0)
        workers.append(pid)
    os.close(listening)
    time.sleep(0.2 + count * 0.02)
    began = time.monotonic()
    os.close(word)
    for pid in workers:
        if os.waitpid(pid, 0)[1] != 0:
            sys.exit(f"a worker of {type(program).__name__} failed")
    return time.monotonic() - began


def measure(fork, program, clones, rounds, folder):
    for count in clones:
        cloned, ready = [], []
        for _ in range(rounds):
            ready.append(by_ready_workers(program, count, folder))
            cloned.append(by_clones(fork, program, count, folder))
        overhead = statistics.median(c / r - 1 for c, r in zip(cloned, ready)) * 100
        print(f"{type(program).__name__.lower():8} {count:3} workers: clones {statistics.median(cloned):6.2f} s, "
              f"zero cost {statistics.median(ready):6.2f} s, overhead {overhead:+5.1f} %", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clones", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", default="", help="names, between commas; all by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        os.environ.update(STDCHK_FORKD=scratch + "/run/socket", STDCHK_FORK_LIBRARY=str(
            (BIN / "stdchk-forkd").resolve().parent / "libstdchk_fork.so.0"))
        daemon = subprocess.Popen([BIN / "stdchk-forkd", "--socket", scratch + "/run/socket", "--ready-file",
                                   scratch + "/ready", "--slots", "64", "--clone-memory", "16M", "--log-level", "warning"])
        try:
            while not os.path.exists(scratch + "/ready"):
                time.sleep(0.02)
            from stdchk import fork

            for kind in PROGRAMS:
                name = kind.__name__.lower()
                if given.programs and name not in given.programs.split(","):
                    continue
                absent = [program for program in kind.needs if shutil.which(program) is None]
                if absent:
                    print(f"{name:8} left out: {', '.join(absent)} is not installed")
                    continue
                measure(fork, kind(folder), given.clones, given.rounds, folder)
        finally:
            daemon.terminate()
            daemon.wait()


main()
