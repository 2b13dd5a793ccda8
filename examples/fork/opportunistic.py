"""Opportunistic job: short pieces of work run on whatever slots are free, and give them back after each piece.

Figure 1 (d) of the SnowFlock paper. Usage: opportunistic.py PIECES
"""

import sys
import time

from stdchk import fork


def main():
    left, total, rounds = list(range(int(sys.argv[1]))), 0, 0
    while left:
        try:
            ticket = fork.request_ticket(min(len(left), 100))
        except BlockingIOError:  # EAGAIN: no slot is free now
            time.sleep(0.05)
            continue
        mine, left = left[: ticket.count], left[ticket.count :]
        me = fork.clone(ticket)
        if me > 0:
            time.sleep(0.01)  # a little work
            fork.exit(mine[me - 1] ** 2)
        total += sum(fork.join(ticket).values())
        rounds += 1
    print(f"sum {total} after {rounds} rounds")


main()
