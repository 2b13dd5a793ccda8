"""Jobs in containers inside of a Slurm job: one line in the job script, a preemption, and the job that goes on with it."""

import os
import shutil

import pytest
from boxes import Base, why_not
from clusters import Cluster
from processes import wait_until

MISSING = [what for what in ("slurmctld", "slurmd", "munged", "ip") if shutil.which(what) is None]
REASON = why_not() or (f"not installed: {MISSING}" if MISSING else None)
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.mark.skipif(not os.environ.get("STDCHK_TEST_CONTAINER"), reason="a part of scripts/check container")
@pytest.mark.parametrize("own_pool", [False, True])
def test_a_preempted_slurm_job_is_saved_and_the_next_one_goes_on(own_pool):
    base = Base()
    cluster = Cluster(2)
    up = f"--job --memory 256M --drain {cluster.pfs}"
    own = f"--up='{up}'" if own_pool else ""
    run_it = (f"STDCHK_ROOT={base.root} STDCHK_CRIU={base.criu} stdchk run {own} "
              "--job --name inslurm --every never %s -- mpiexec.mpich -n 3 /opt/stdchk-test/ring-mpich 300 4")
    pool = "" if own_pool else f'eval "$(stdchk up --export {up})" || exit 1'
    down = "" if own_pool else "stdchk down --drain $STDCHK_MOUNT"
    folder = "inslurm" if own_pool else "$STDCHK_MOUNT/inslurm"
    nodes = ("--nodes=2", "--ntasks-per-node=1")
    try:
        # The script waits twice, because the signal ends its first wait.
        first = cluster.submit(*nodes, script="\n".join(
            [pool, run_it % "-n 3" + " & run=$!", "trap 'kill -TERM $run' USR1", "wait $run", "wait $run", "echo status $?",
             down]))
        wait_until(lambda: "round 40" in cluster.output(), "the program runs", 60)
        cluster.call("run", "scancel", "--batch", "--signal=USR1", first)
        cluster.wait(first, 120)
        assert "saved, and ended by SIGTERM" in cluster.output() and "status 143" in cluster.output(), cluster.output()
        second = cluster.submit(*nodes, script="\n".join(
            [pool, run_it.split(" -- ")[0] % f"--restart {folder}", "echo status $?", down]))
        cluster.wait(second, 180)
        assert "300 lines" in cluster.output() and "status 0" in cluster.output(), cluster.output()
    finally:
        cluster.call("down", check=False)
