"""Tests writing without a copy through the C interface (reserver.c)."""

import time

from processes import BIN, run

RESERVER = (BIN / "stdchk").resolve().parents[1] / "tests" / "integration" / "reserver"


def test_reservations_append_and_one_that_is_misused_is_told_so_at_once(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    where = {"STDCHK_MANAGER": pool.record["manager_address"], "STDCHK_SECRET_FILE": pool.record["secret_file"]}
    began = time.monotonic()
    assert run(RESERVER, "file", env=pool.environment | where).stdout == "right\n"
    assert time.monotonic() - began < 20  # no call has waited for a deadline
    pool.down()
