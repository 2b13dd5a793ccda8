"""A data science worker: the parent has a model in memory (numpy), and clones evaluate it.

Usage: model.py CLONES. Prints the number of scores, after a comparison with the scores that the parent computes alone.
"""

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before the import: a clone has only the thread that called

import numpy as np  # noqa: E402
from stdchk import fork  # noqa: E402

QUERIES, WIDTH = 256, 1024


def scores(model, queries):
    """Evaluates each query alone: scores are equal in shares of any size."""
    return np.array([np.tanh(query @ model).sum() for query in queries])


def main():
    wanted = int(sys.argv[1])
    random = np.random.default_rng(1)
    model = random.standard_normal((WIDTH, WIDTH))  # 8 MiB; stands for a model that takes minutes to load
    queries = random.standard_normal((QUERIES, WIDTH))
    ticket = fork.request_ticket(wanted)
    me = fork.clone(ticket)
    if me > 0:
        fork.exit(scores(model, queries[me - 1 :: ticket.count]).tobytes())
    found = np.empty(QUERIES)
    for number, share in fork.join(ticket).items():
        found[number - 1 :: ticket.count] = np.frombuffer(share)
    if not np.array_equal(found, scores(model, queries)):
        sys.exit("the clones' scores differ from the parent's")
    print(f"{ticket.count} clones, {QUERIES} scores, equal to the parent's")


main()
