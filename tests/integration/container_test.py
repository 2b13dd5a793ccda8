"""Unmodified MPI programs in containers: saved into the pool, killed, restarted, with the result of an undisturbed run."""

import contextlib
import uuid

import pytest
from boxes import Base, Job, Pool, why_not
from processes import BIN, run

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def base():
    return Base()


@pytest.fixture
def pool(tmp_path):
    made = Pool(tmp_path)
    yield made
    made.down()


@contextlib.contextmanager
def job(pool, base, *words, **options):
    started = Job(pool, base, options.pop("name", f"t{uuid.uuid4().hex[:8]}"), *words, **options)
    try:
        yield started
    finally:
        started.end()


def ring(library, *arguments):
    return ["--", f"mpiexec.{library}", "-n", "3", f"/opt/stdchk-test/ring-{library}", *arguments]


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_a_job_that_was_saved_and_killed_has_the_result_of_an_undisturbed_run(pool, base, library):
    with job(pool, base, "-n", 3, "--nodes", 2, *ring(library, "150", "8")) as straight:
        assert straight.wait() == 0, straight.err
    with job(pool, base, "-n", 3, "--nodes", 2, *ring(library, "150", "8")) as first:
        first.wait_for("round 20")
        assert first.checkpoint() == f"{first.name}.*.T1"
        first.wait_for("round 40")
        assert first.checkpoint() == f"{first.name}.*.T2"
        first.wait_for("round 60")
        first.kill()
    with job(pool, base, first.name, command="restart", name=first.name) as second:
        assert second.wait() == 0, second.err
    assert second.result() == straight.result()
    assert "150 lines" in second.result()
    assert "round 0" not in second.out, "it went on from the set, not from the beginning"
    rounds = first.lines["out"] + second.lines["out"]
    assert len(rounds) >= 9


def test_a_lost_node_costs_a_step_back_and_not_the_job(pool, base):
    with job(pool, base, "-n", 3, "--nodes", 3, "--spares", 1, "--lease", 2, *ring("mpich", "200", "4")) as one:
        one.wait_for("round 20")
        one.checkpoint()
        one.wait_for("round 40")
        daemons = run("pgrep", "-P", one.process.pid).stdout.split()
        run("kill", "-KILL", daemons[1])
        one.wait_for("runs again from set T1", "err")
        status = one.status()
        assert status["restarts"] == 1
        assert one.wait() == 0, one.err
        assert "200 lines" in one.result()


def test_a_node_is_evacuated_while_the_job_goes_on(pool, base):
    with job(pool, base, "-n", 3, "--nodes", 3, "--spares", 1, *ring("mpich", "200", "4")) as one:
        one.wait_for("round 20")
        run(BIN / "stdchk", "evacuate", "--job", one.name, "node1", env=one.environment)
        placed = {node["host"]: node["boxes"] for node in one.status()["nodes"]}
        assert placed["node1"] == [] and placed["node2"] != []
        assert one.wait() == 0, one.err
        assert "200 lines" in one.result()
        assert one.err.count("stdchk: set") == 1


def test_a_program_asks_for_a_checkpoint_and_learns_that_it_was_restarted(pool, base):
    with job(pool, base, "-n", 3, *ring("mpich", "200", "4", "30")) as first:
        first.wait_for("ASKED goes-on 1")
        first.wait_for("round 80")
        first.kill()
    with job(pool, base, first.name, command="restart", name=first.name) as second:
        assert second.wait() == 0, second.err
    assert "ASKED restarted 1" in second.out


def test_the_program_s_own_status_is_that_of_the_command(pool, base):
    with job(pool, base, "-n", 1, "--", "sh", "-c", "echo said; echo wrong >&2; exit 7") as one:
        assert one.wait() == 7
        assert one.lines["out"] == ["said"]
        assert "wrong" in one.lines["err"]
