"""Jobs in containers inside of a PBS job: a preemption, and the next job, which goes on.

No distribution has PBS. The nodes are those of a Slurm cluster of namespaces; `Pbs` stands in for the rest.
"""

import os
import shutil

import pytest
from boxes import Base, why_not
from clusters import Cluster, Pbs, nothing_left

MISSING = [what for what in ("slurmctld", "slurmd", "munged", "ip") if shutil.which(what) is None]
REASON = why_not() or (f"not installed: {MISSING}" if MISSING else None) or (
    None if os.environ.get("STDCHK_TEST_CONTAINER") else "a part of scripts/check container")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

SCRIPT = """
export STDCHK_ROOT={root} STDCHK_CRIU={criu}
eval "$(stdchk up --job --export --memory 256M --drain {drain})" || exit 1
stdchk run --job --rsh "$PBS_STAND_IN/ssh" --name inpbs --lease 2 --every never {words} >{out} 2>&1 &
run=$!
{then}
wait $run
echo status $?
stdchk down --drain $STDCHK_MOUNT
"""


def test_a_preempted_pbs_job_is_saved_and_the_next_one_goes_on():
    base = Base()
    cluster = Cluster(2)
    pbs = Pbs(cluster, cluster.nodes)
    first, second = cluster.folder / "first.out", cluster.folder / "second.out"
    common = {"root": base.root, "criu": base.criu, "drain": cluster.pfs}
    try:
        done = pbs.run(SCRIPT.format(
            words="-n 3 -- mpiexec.mpich -n 3 /opt/stdchk-test/ring-mpich 300 4", out=first, **common,
            then=f"until grep -q 'round 40' {first}; do kill -0 $run || break; sleep 0.1; done; kill -TERM $run"), 120)
        said = first.read_text() + done.stdout + done.stderr
        assert "saved, and ended by SIGTERM" in said and "status 143" in said, said
        assert "3 ranks on 2 nodes" in said, "PBS names each node twice; a node has one daemon"
        nothing_left(cluster, cluster.nodes)
        done = pbs.run(SCRIPT.format(words="--restart $STDCHK_MOUNT/inpbs", out=second, then="", **common), 180)
        said = second.read_text() + done.stdout + done.stderr
        assert "300 lines" in said and "status 0" in said, said
        assert "round 0\n" not in said and "round 40" not in said, "it went on from the set"
        nothing_left(cluster, cluster.nodes)
    finally:
        pbs.end()
        cluster.end()
