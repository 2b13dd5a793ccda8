"""Sandboxing: untrusted code runs in a clone, whose files, processes and network are its own.

Figure 1 (a) of the SnowFlock paper. Usage: sandbox.py SECONDS CODE. The code sees `state`; a clone that takes longer than
SECONDS is killed. A clone is separated from the host, not confined: it still runs as the same user.
"""

import sys
import threading

from stdchk import fork


def main():
    seconds, code = float(sys.argv[1]), sys.argv[2]
    state = {"answer": 42}
    ticket = fork.request_ticket(1)
    if fork.clone(ticket) > 0:
        scope = {"state": state}
        exec(code, scope)  # untrusted: only here
        fork.exit(repr(scope.get("result")))
    limit = threading.Timer(seconds, fork.kill, [ticket])
    limit.start()
    try:
        print("result:", fork.join(ticket)[1])
    except fork.CloneFailed as failed:
        print("no result:", failed)
    limit.cancel()
    print("state of the parent:", state)


main()
