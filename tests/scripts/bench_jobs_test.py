"""Tests the benchmark section on jobs: when it must not run, when a job is over, and how its rows are
made."""

import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import time
import zlib

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import jobs  # noqa: E402
from report import Failure, Report, Series  # noqa: E402


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder with stand-ins for all programs that the section needs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (*jobs.PROGRAMS, "barrier-ranks"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    (folder / "blkio.throttle.write_bps_device").touch()
    monkeypatch.setattr(jobs, "THROTTLE", folder)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder


def report(**required):
    one = Report(required.pop("aims", {}), "today.", **required)
    one.section("Jobs", "What pools cost.")
    return one


def row(one, name):
    return next(each for each in one.rows if each.name == name)


def answer(stdout="", stderr="", status=0):
    return subprocess.CompletedProcess([], status, stdout, stderr)


def test_the_section_names_what_it_needs_and_does_not_have(programs, monkeypatch):
    assert jobs.missing(programs) == []
    (programs / "barrier-ranks").unlink()
    (programs / "blkio.throttle.write_bps_device").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nowhere")
    assert jobs.missing(programs) == ["the rights of root", *jobs.PROGRAMS,
                                      "the control groups of version 1 that limit a device's rate",
                                      "barrier-ranks, which is built with an MPI"]


def test_a_job_is_over_when_the_controller_says_so_and_not_when_it_is_silent():
    assert jobs.is_over(answer())
    assert jobs.is_over(answer(stderr="slurm_load_jobs error: Invalid job id specified", status=1))
    assert not jobs.is_over(answer(" 3  all  job.sh  root  CG  0:01  2 n[1-2]\n"))
    assert not jobs.is_over(answer(stderr="slurm_load_jobs error: Unable to contact slurm controller", status=1))
    assert not jobs.is_over(answer(stderr="slurm_load_jobs error: Socket timed out", status=1))


def test_a_job_is_waited_for_across_a_silent_controller(tmp_path, monkeypatch):
    cluster = tmp_path / "slurm-cluster"
    cluster.write_text(f"""#!/bin/bash
[[ $1 == run ]] || exit 0
case $2 in
  sbatch) echo 7 ;;
  squeue)
    echo >>{tmp_path}/asked
    case $(wc -l <{tmp_path}/asked) in
      1) echo "7 all job.sh root R" ;;
      2) echo "slurm_load_jobs error: Socket timed out" >&2; exit 1 ;;
      3) printf 'of the job\\nend %s\\n' "$(date +%s.%N)" >{tmp_path}/cluster/job.out ;;
    esac ;;
esac
""")
    cluster.chmod(0o755)
    monkeypatch.setattr(jobs, "CLUSTER", cluster)
    monkeypatch.setattr(jobs.tempfile, "mkdtemp", lambda **_: str(tmp_path / "cluster"))
    (tmp_path / "cluster").mkdir()
    with jobs.cluster(4, tmp_path) as one:
        text, took = one.job(4, "true")
    assert text.startswith("of the job") and 0 <= took < 60
    assert not (tmp_path / "cluster").exists()


def test_a_cluster_that_does_not_come_up_leaves_nothing(tmp_path, monkeypatch):
    cluster = tmp_path / "slurm-cluster"
    cluster.write_text(f"#!/bin/bash\necho $1 >>{tmp_path}/called\n[[ $1 != up ]]\n")
    cluster.chmod(0o755)
    monkeypatch.setattr(jobs, "CLUSTER", cluster)
    monkeypatch.setattr(jobs.tempfile, "mkdtemp", lambda **_: str(tmp_path / "cluster"))
    (tmp_path / "cluster").mkdir()
    with pytest.raises(Failure, match="exit 1"), jobs.cluster(4, tmp_path):
        pass
    assert (tmp_path / "called").read_text().split() == ["up", "down"]
    assert not (tmp_path / "cluster").exists()


def test_what_is_in_the_drain_directory_counts_before_it_has_its_name(tmp_path):
    (tmp_path / ".stdchk-drain").mkdir()
    before = jobs.bytes_below(tmp_path)
    (tmp_path / ".stdchk-drain" / "part").write_bytes(os.urandom(1 << 20))
    with open(tmp_path / "hole", "wb") as hole:
        hole.truncate(1 << 30)
    assert 1 << 20 <= jobs.bytes_below(tmp_path) - before < 2 << 20


class Pool:
    """Stands in for a pool that immediately drains the share `drains` of the written bytes."""

    def __init__(self, mount, monkeypatch, drains=0.0):
        self.mount, self.drains, self.written = mount, drains, 0
        monkeypatch.setattr(jobs, "pool", lambda *_, **__: self)
        monkeypatch.setattr(jobs, "write_file", self.write_file)
        monkeypatch.setattr(jobs, "not_drained", self.not_drained)

    def __enter__(self):
        return self.mount

    def __exit__(self, *_):
        return False

    def write_file(self, path, bytes_count):
        self.written += bytes_count
        with open(self.mount / "drain" / path.name, "wb") as file:
            file.write(os.urandom(int(bytes_count * self.drains)))
        return 0.001

    def not_drained(self, *_):
        pending = self.written * (1 - self.drains)
        return pending, 2 * pending > jobs.POOL_IMAGES << 20


@pytest.fixture
def drain(tmp_path):
    one = tmp_path / "drain"
    one.mkdir()
    return one


def test_what_is_not_drained_is_above_half_when_it_is_more_than_half(programs):
    def says(pending, total):
        said = json.dumps({"pool": {"drain_pending_bytes": pending, "total_bytes": total}})
        (programs / "stdchk").write_text(f"#!/bin/sh\necho '{said}'\n")
        (programs / "stdchk").chmod(0o755)
        return jobs.not_drained(programs, "mnt")
    assert says(50, 100) == (50, False)
    assert says(51, 100) == (51, True)


def test_memory_is_filled_up_before_each_write_that_is_measured(tmp_path, monkeypatch, drain):
    """The drain takes a quarter of each image at once, so the first 17 images are not enough."""
    for fill, is_above, images in ((jobs.FILLS[0], False, 8), (jobs.FILLS[1], True, 8 + 5)):
        drain.mkdir(exist_ok=True)
        Pool(tmp_path, monkeypatch, drains=0.25)
        written = jobs.write_and_pause(tmp_path, tmp_path, fill, 1, drain)
        assert len(written.seconds) == 8 and written.began_above == [is_above] * 8
        assert written.bytes_count == images << 20
        assert images << 18 <= written.drained_bytes < (images << 18) + (1 << 19)
        assert not drain.exists()


def test_without_a_drain_nothing_is_filled_up(tmp_path, monkeypatch, drain):
    Pool(tmp_path, monkeypatch)
    written = jobs.write_and_pause(tmp_path, tmp_path, jobs.FILLS[1], 1)
    assert len(written.seconds) == 8 and written.bytes_count == 8 << 20
    assert len(list(drain.iterdir())) == 17 + 8


def test_a_drain_that_is_as_fast_as_the_writes_has_no_rows(tmp_path, monkeypatch):
    def write_and_pause(bin_dir, scratch, fill, size_mib, drain=None):
        return jobs.Written([1.0] * 8, [False] * 5 + [fill.not_drained > 0] * 3, 8 << 20, 1 << 20)
    monkeypatch.setattr(jobs, "write_and_pause", write_and_pause)
    one = report()
    with pytest.raises(Failure, match="above half: the drain is as fast as the writes"):
        jobs.slowdown(one, tmp_path, tmp_path, tmp_path, 2, 4)
    assert all(each.name.startswith("below half") for each in one.rows)


def test_a_drain_that_does_nothing_has_no_rows(tmp_path, monkeypatch, drain):
    Pool(tmp_path, monkeypatch)
    with pytest.raises(Failure, match="nothing was drained"):
        jobs.write_and_pause(tmp_path, tmp_path, jobs.FILLS[0], 1, drain)


def test_the_slowdown_is_that_of_each_fill_with_and_without_a_drain_in_turns(monkeypatch, tmp_path):
    asked = []

    def write_and_pause(bin_dir, scratch, fill, size_mib, drain=None):
        first = (fill.name, drain is not None) not in asked
        asked.append((fill.name, drain is not None))
        seconds = 9.0 if first else 2.0 if drain else 1.0
        return jobs.Written([seconds] * jobs.MEASURED_IMAGES, [fill.not_drained > 0] * jobs.MEASURED_IMAGES,
                            8 << 20, 2 << 20 if drain else 0)
    monkeypatch.setattr(jobs, "write_and_pause", write_and_pause)
    one = report(aims=jobs.AIMS)
    jobs.slowdown(one, tmp_path, tmp_path, tmp_path, 2, 4)
    assert asked == [(fill.name, drains) for fill in jobs.FILLS for _ in range(3) for drains in (False, True)]
    for fill, above in zip(jobs.FILLS, (0.0, 1.0)):
        write = row(one, f"{fill.name}: write, while it is drained")
        assert write.ratio.values == [0.5, 0.5] and write.missed == (fill is jobs.FILLS[0])
        assert row(one, f"{fill.name}: {jobs.DRAINED}").ratio.values == [0.25, 0.25]
        assert row(one, f"{fill.name}: {jobs.BEGAN_ABOVE}").figure.values == [above, above]


def test_fills_are_on_both_sides_of_half():
    below, above = jobs.FILLS
    assert 2 * (below.not_drained + 1 + jobs.MEASURED_IMAGES) <= jobs.POOL_IMAGES
    # All images fit even without a drain.
    assert 2 * above.not_drained > jobs.POOL_IMAGES > above.not_drained + jobs.MEASURED_IMAGES


def test_ranks_at_a_barrier_are_compared_with_the_disk(programs, monkeypatch, tmp_path):
    Pool(tmp_path / "mnt", monkeypatch)
    (programs / "mpirun").write_text(f"""#!/bin/sh
echo "$*" >>{tmp_path}/asked
echo '{{"directory": "{tmp_path}/direct", "values": [2.0], "taken": {time.time() + 5}}}'
echo '{{"directory": "{tmp_path}/mnt", "values": [1.0], "taken": {time.time() + 5}}}'
""")
    one = report()
    jobs.barrier(one, programs, tmp_path, 1, 64)
    assert [each.name for each in one.rows] == [f"{ranks} ranks at a barrier" for ranks in jobs.RANKS]
    assert all(each.ratio.values == [0.5] for each in one.rows)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split("-n ")[1].split()[0] for line in asked] == [str(ranks) for ranks in jobs.RANKS]
    assert all(f"--fsync {tmp_path}/direct {tmp_path}/mnt {tmp_path}/direct" in line for line in asked)


def test_the_rows_of_the_cluster_must_come():
    one = report(aims=jobs.AIMS, ratios=jobs.RATIOS, figures=jobs.FIGURES)
    of_cluster = [name for name in jobs.FIGURES if "nodes: " in name or name.startswith("epilog")]
    assert {f"{nodes} nodes: `up --job`" for nodes in (4, 16, 64)} < set(of_cluster)
    assert len([name for name in of_cluster if name.startswith("epilog")]) == len(jobs.LEFT_MIB)
    values = Series([1.0], "s", time.time() + 5)
    for name in [*jobs.AIMS, *jobs.RATIOS, *jobs.FIGURES]:
        if not any(fnmatch.fnmatch(name, each) for each in of_cluster):
            one.add(name, values, "beside", values)
    with pytest.raises(Failure) as failed:
        one.check_complete()
    assert sorted(str(failed.value).removeprefix("not measured: ").split("; ")) == sorted(of_cluster)


def test_the_images_of_jobs_cannot_be_compressed_and_share_nothing(tmp_path):
    jobs.write_file(tmp_path / "image", 4 << 20)
    image = (tmp_path / "image").read_bytes()
    assert len(image) == 4 << 20 and len(zlib.compress(image)) > 0.99 * len(image)
    assert len({image[at:at + (1 << 20)] for at in range(0, len(image), 1 << 20)}) == 4
