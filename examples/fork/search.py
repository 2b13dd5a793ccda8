"""A search of sequences by BLAST+: the parent reads the database once, and each clone searches for a share of the queries.

Usage: search.py DATABASE QUERIES CLONES. DATABASE is what makeblastdb -out has made, QUERIES a file of sequences (FASTA).
Prints the best hit of each query. Each clone runs blastn, whose database is in this host's page cache.
"""

import pathlib
import subprocess
import sys

from stdchk import fork


def queries_of(path):
    """Returns the queries, each with its line of description."""
    return [">" + text for text in pathlib.Path(path).read_text().split(">") if text.strip()]


def read_database(database):
    """Brings the files of the database into memory. Returns their size."""
    path = pathlib.Path(database)
    return sum(len(part.read_bytes()) for part in path.parent.glob(path.name + ".*"))


def best_hits(database, queries):
    """Returns the sequence with the highest score, and the score, for each query that has a hit."""
    words = ["blastn", "-db", database, "-query", "-", "-word_size", "11", "-outfmt", "6 qseqid sseqid bitscore"]
    done = subprocess.run(words, input="".join(queries), capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        query, sequence, score = line.split("\t")
        found[query] = max(found.get(query, (0.0, "")), (float(score), sequence))
    return found


def main():
    database, queries, wanted = sys.argv[1], queries_of(sys.argv[2]), int(sys.argv[3])
    read_database(database)
    ticket = fork.request_ticket(wanted)
    me = fork.clone(ticket)
    if me > 0:
        fork.exit(best_hits(database, queries[me - 1 :: ticket.count]))
    found = {}
    for share in fork.join(ticket).values():
        found.update(share)
    for query, (score, sequence) in sorted(found.items()):
        print(query, sequence, score)


main()
