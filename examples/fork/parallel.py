"""Parallel computation: the parent loads its data once, and N clones each work on a share.

Figure 1 (b) of the SnowFlock paper. Usage: parallel.py CLONES
"""

import sys

from stdchk import fork


def main():
    wanted = int(sys.argv[1])
    words = [(n * 2654435761) % 1000003 for n in range(300_000)]  # stands for what takes long to load
    ticket = fork.request_ticket(wanted)
    me = fork.clone(ticket)
    if me > 0:
        fork.exit(max(words[me - 1 :: ticket.count]))
    print(f"{ticket.count} clones, largest word {max(fork.join(ticket).values())}")


main()
