"""A search by Debian's ncbi-blast+ in a database of generated sequences: a long-running program with real
memory."""

import random
import shutil
import subprocess

PROGRAMS = ("makeblastdb", "blastn")


def missing():
    """The programs that are not installed."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def make(folder, megabytes, queries):
    """Writes the database and the queries: `megabytes` sequences of 1 MiB, each with a twentieth changed from
    one original."""
    rng = random.Random(2)
    letters = bytes(rng.choices(b"ACGT", k=1 << 20))
    with open(folder / "database.fa", "wb") as file:
        for number in range(megabytes):
            turn = rng.randrange(len(letters))
            changed = bytearray(letters[turn:] + letters[:turn])
            for at in rng.sample(range(len(changed)), len(changed) // 20):
                changed[at] = rng.choice(b"ACGT")
            file.write(b">s%d\n%s\n" % (number, bytes(changed)))
    with open(folder / "query.fa", "wb") as file:
        for number in range(queries):
            at = rng.randrange(len(letters) - 2000)
            file.write(b">q%d\n%s\n" % (number, letters[at:at + 2000]))
    subprocess.run(["makeblastdb", "-in", folder / "database.fa", "-dbtype", "nucl", "-out", folder / "db"],
                   check=True, stdout=subprocess.DEVNULL)


def search(folder):
    """Starts the search, which ends by itself."""
    return subprocess.Popen(["blastn", "-db", folder / "db", "-query", folder / "query.fa", "-word_size", "11",
                             "-out", folder / "found"])
