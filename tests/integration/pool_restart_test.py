"""Tests restarts from a pool, loading a drained set into a new pool, and monitoring."""

import json
import os
import pathlib
import re
import subprocess
import time

import pytest
from conftest import Pool, restart_manager
from file_systems import troubled
from processes import BIN, is_running, leads_to, run, wait_until

MIB = 1 << 20


def write_set(folder, timestep, ranks=3):
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        run("sh", "-c", f"head -c {2 * MIB + rank} /dev/urandom >{folder}/app.N{rank}.T{timestep}")


def drained_pool(pool, *timesteps):
    """Sets of three images in the drain directory of a pool that has ended."""
    pool.up("--policy", "images=3", benefactors=2, memory="64M")
    for timestep in timesteps:
        write_set(pool.mount / "run", timestep)
    pool.down("--drain")
    return pool.drain / "run"


def test_a_drained_set_is_loaded_into_another_pool(pool, tmp_path):
    drained = drained_pool(pool, 1, 2)
    other = Pool(tmp_path)
    try:
        other.up("--policy", "images=3", benefactors=2, memory="64M", drain=False)
        found = json.loads(other.stdchk("stage-in", "--json", "--to", other.mount, drained).stdout)
        assert found["files"] == 3 and found["bad"] == []
        assert found["bytes"] == found["checked_bytes"] == 3 * 2 * MIB + 3
        for rank in range(3):
            assert run("cmp", drained / f"app.N{rank}.T2", other.mount / f"app.N{rank}.T2").returncode == 0
        latest = other.mount / "latest"
        wait_until(latest.is_symlink, "the link, which the manager moves by itself")
        assert latest.readlink().name == "app.*.T2"
        assert not (other.mount / "app.N0.T1").exists()
        # Loads the whole drain directory, with its folders and the older set.
        other.stdchk("stage-in", "--all", "--to", other.mount, pool.drain)
        assert run("cmp", drained / "app.N1.T1", other.mount / "run" / "app.N1.T1").returncode == 0
        other.down()
        # A pool with its own drain directory drains the loaded files there.
        other.up("--policy", "images=3", benefactors=2, memory="64M")
        other.stdchk("stage-in", pool.drain)
        other.stdchk("drain", "--wait", other.mount)
        assert run("cmp", drained / "app.N1.T2", other.drain / "run" / "app.N1.T2").returncode == 0
        other.down()
    finally:
        other.clean()


def drained_as(pool):
    """Inodes, times and sizes in the drain directory. A new drain would change some of them."""
    return {path: (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_size)
            for path in sorted((pool.drain / "run").iterdir()) if not path.name.startswith(".")}


def test_what_the_pool_has_drained_is_loaded_and_stays_drained(pool):
    drained = drained_pool(pool, 1, 2)
    before = drained_as(pool)
    pool.up("--policy", "images=3,must-be-drained=yes", benefactors=2, memory="64M")
    folder = pool.mount / "run"
    latest = folder / "latest"
    assert os.readlink(latest) == "app.*.T2"

    def in_memory(name):
        return json.loads(pool.stdchk("stat", "--json", folder / name).stdout)["bytes_only_drained"] == 0

    wrote = json.loads(pool.stdchk("report", "--json", pool.mount).stdout)
    # Without --to, the files load under the names that the pool shows.
    found = json.loads(pool.stdchk("stage-in", "--json", drained).stdout)
    assert found["files"] == 3 and found["bad"] == [] and found["checked_bytes"] == 3 * 2 * MIB + 3
    assert not (pool.mount / "app.N0.T2").exists()
    # The set is safe at once: it never left the drain directory.
    assert pool.stdchk("safe", pool.mount, check=False).returncode == 0
    assert drained_as(pool) == before
    assert [in_memory(f"app.N{rank}.T2") for rank in range(3)] == [True] * 3
    assert not in_memory("app.N0.T1")
    assert os.readlink(latest) == "app.*.T2"
    for rank in range(3):
        assert run("cmp", drained / f"app.N{rank}.T2", folder / f"app.N{rank}.T2").returncode == 0
    # Loads everything, of which half is loaded already. Then restarts the manager to check its view.
    pool.stdchk("stage-in", "--all", "--readers", "2", pool.drain)
    assert in_memory("app.N2.T1") and drained_as(pool) == before
    sets = json.loads(pool.stdchk("set", "list", "--json", folder).stdout)["sets"]
    assert sorted((one["set"], one["complete"], one["drained"]) for one in sets) == [
        ("app.*.T1", False, 0), ("app.*.T2", True, 3)]
    assert pool.stdchk("check").returncode == 0
    pool.stdchk("drain", "--wait", pool.mount)
    after = json.loads(pool.stdchk("report", "--json", pool.mount).stdout)
    assert {key: after[key] for key in ("images", "drained_images")} == {
        key: wrote[key] for key in ("images", "drained_images")}
    # A file with another name counts as another file.
    (pool.mount / "copy").mkdir()
    pool.stdchk("stage-in", "--to", pool.mount / "copy", drained)
    pool.stdchk("drain", "--wait", pool.mount)
    assert run("cmp", drained / "app.N1.T2", pool.drain / "copy" / "app.N1.T2").returncode == 0
    assert drained_as(pool) == before
    # A new write replaces the drained file as usual.
    write_set(folder, 2)
    pool.stdchk("drain", "--wait", pool.mount)
    assert drained_as(pool) != before
    assert run(BIN / "stdchk", "verify", pool.drain).returncode == 0
    pool.down()


def test_what_was_changed_since_it_was_drained_is_loaded_as_new(pool):
    drained = drained_pool(pool, 1)
    pool.up("--policy", "images=3", benefactors=2, memory="64M")
    # The first file has another time: the pool takes it for a file that a user put there.
    os.utime(drained / "app.N0.T1", ns=(1, 1))
    number = os.stat(drained / "app.N0.T1").st_ino
    # The second file has other bytes: its checksum in the manifest differs.
    with open(drained / "app.N1.T1", "r+b") as image:
        times = os.stat(image.fileno())
        image.write(b"other bytes")
    os.utime(drained / "app.N1.T1", ns=(times.st_atime_ns, times.st_mtime_ns))
    done = pool.stdchk("stage-in", "--json", drained, check=False)
    assert [one["fault"] for one in json.loads(done.stdout)["bad"]] == ["is not what the manifest says"]
    pool.stdchk("drain", "--wait", pool.mount)
    # The pool drained the file anew. The file keeps the time that the user gave it.
    there = os.stat(drained / "app.N0.T1")
    assert there.st_ino != number and there.st_mtime_ns == 1
    # The pool still has the damaged image only in the drain directory. No reader gets the wrong bytes.
    with pytest.raises(OSError, match="Input/output error"):
        (pool.mount / "run" / "app.N1.T1").read_bytes()
    safe = pool.stdchk("safe", pool.mount, check=False)
    assert safe.returncode == 1 and "run/app.N1.T1" in safe.stdout and "app.N0.T1" not in safe.stdout
    pool.down()


def test_all_sets_are_loaded_in_the_order_of_their_timesteps(pool, tmp_path):
    pool.up("--policy", "images=2", benefactors=2, memory="64M")
    for timestep in (2, 4, 10):
        write_set(pool.mount / "run", timestep, ranks=2)
    write_set(pool.mount / "other", 1, ranks=2)
    pool.down("--drain")
    other = Pool(tmp_path)

    def complete():
        found = json.loads(other.stdchk("set", "list", "--json", other.mount / "run").stdout)["sets"]
        return {one["set"]: one["complete"] for one in found}

    try:
        other.up("--policy", "images=2", benefactors=2, memory="64M", drain=False)
        latest = other.mount / "run" / "latest"
        # Sorted by name, timestep 10 comes first. A single reader loads one file at a time.
        for readers in (16, 1):
            other.stdchk("stage-in", "--all", "--readers", readers, pool.drain)
            assert complete() == {f"app.*.T{timestep}": True for timestep in (2, 4, 10)}
            wait_until(lambda: leads_to(latest, "app.*.T10"), "the newest set")
        # A loaded pool must keep the newest written set as the newest, although its timestep is earlier.
        (pool.drain / "run" / "latest").unlink()
        (pool.drain / "run" / "latest").symlink_to("app.*.T4")
        other.stdchk("stage-in", "--all", pool.drain)
        wait_until(lambda: leads_to(latest, "app.*.T4"), "the set that the drained link names")
        assert all(complete().values())
        other.down()
    finally:
        other.clean()


def test_several_wait_for_the_drain_of_one_folder_at_once(pool):
    pool.up(benefactors=2, memory="64M")
    folder = pool.mount / "run"
    folder.mkdir()
    names = [f"app.N{rank}.T1" for rank in range(150)]
    for name in names:
        (folder / name).write_bytes(name.encode() * 100)
    waiting = [subprocess.Popen([BIN / "stdchk", "drain", "--wait", where], env=pool.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
               for where in [pool.mount, folder] * 4]
    ends = [(one.communicate(timeout=60)[1], one.returncode) for one in waiting]
    assert ends == [("", 0)] * 8
    found = json.loads(run(BIN / "stdchk", "verify", "--json", pool.drain).stdout)
    assert found["files"] == 150 and found["bad"] == found["unlisted"] == []
    assert [path.name for path in (pool.drain / "run").glob(".*")] == [".stdchk-manifest"]
    # With --no-manifest, the command only waits and writes no manifest.
    (folder / "more").write_text("more")
    pool.stdchk("drain", "--wait", "--no-manifest", pool.mount)
    assert json.loads(run(BIN / "stdchk", "verify", "--json", pool.drain).stdout)["unlisted"] == [
        str(pool.drain / "run" / "more")]
    pool.down()


def test_files_in_no_manifest_are_loaded_as_they_are(pool, tmp_path):
    drained = drained_pool(pool, 1)
    manifest = json.loads((drained / ".stdchk-manifest").read_text())
    del manifest["files"]["app.N2.T1"]
    (drained / ".stdchk-manifest").write_text(json.dumps(manifest))
    done = run(BIN / "stdchk", "verify", drained)
    assert f"{drained}/app.N2.T1 is in no manifest" in done.stdout and "2 files, 0 bad" in done.stdout
    other = Pool(tmp_path)
    try:
        other.up("--policy", "images=3", benefactors=2, memory="64M", drain=False)
        done = other.stdchk("stage-in", drained)
        assert "3 files" in done.stdout and "1 of the files are in no manifest" in done.stdout
        # Imitates a pool that was lost before it wrote a manifest.
        (drained / ".stdchk-manifest").unlink()
        assert "there is no .stdchk-manifest" in run(BIN / "stdchk", "verify", drained, check=False).stderr
        (other.mount / "again").mkdir()
        found = json.loads(other.stdchk("stage-in", "--json", "--to", other.mount / "again", drained).stdout)
        assert found["files"] == found["unlisted"] == 3 and found["checked_bytes"] == 0
        for folder in (other.mount, other.mount / "again"):
            assert all(run("cmp", drained / f"app.N{rank}.T1", folder / f"app.N{rank}.T1").returncode == 0
                       for rank in range(3))
        other.down()
    finally:
        other.clean()


def test_a_manifest_keeps_what_the_pool_has_given_up_and_drops_what_has_gone(pool):
    pool.up("--policy", "images=2,keep=1", benefactors=2, memory="64M")
    folder = pool.mount / "run"
    for timestep in (1, 2, 3):
        write_set(folder, timestep, ranks=2)
        pool.stdchk("drain", "--wait", pool.mount)
    wait_until(lambda: images_in(folder) == ["app.N0.T3", "app.N1.T3"], "what keep=1 leaves")
    pool.stdchk("drain", "--wait", pool.mount)

    def listed():
        return sorted(json.loads((pool.drain / "run" / ".stdchk-manifest").read_text())["files"])

    assert listed() == [f"app.N{rank}.T{timestep}" for rank in range(2) for timestep in (1, 2, 3)]
    (pool.drain / "run" / "app.N0.T1").unlink()
    (folder / "app.N1.T3").unlink()
    wait_until(lambda: not (pool.drain / "run" / "app.N1.T3").exists(), "the removal in the drain directory")
    pool.stdchk("drain", "--wait", pool.mount)
    assert listed() == ["app.N0.T2", "app.N0.T3", "app.N1.T1", "app.N1.T2"]
    assert run(BIN / "stdchk", "verify", pool.drain).returncode == 0
    pool.down()


def test_a_damaged_image_is_not_loaded(pool, tmp_path):
    drained = drained_pool(pool, 1)
    with open(drained / "app.N1.T1", "r+b") as image:
        image.seek(MIB + 5)
        byte = image.read(1)[0]
        image.seek(MIB + 5)
        image.write(bytes([byte ^ 1]))
    other = Pool(tmp_path)
    try:
        other.up(benefactors=2, memory="64M", drain=False)
        done = other.stdchk("stage-in", drained, check=False)
        assert done.returncode == 1 and "app.N1.T1 is not what the manifest says" in done.stdout
        # Each image is committed whole or absent.
        assert sorted(path.name for path in other.mount.iterdir()
                      if path.stat().st_size) == ["app.N0.T1", "app.N2.T1"]
        (drained / "app.N2.T1").unlink()
        done = other.stdchk("stage-in", drained, check=False)
        assert "app.N2.T1 cannot be opened" in done.stdout
        (tmp_path / "empty").mkdir()
        assert "no file in" in other.stdchk("stage-in", tmp_path / "empty", check=False).stderr
        other.down()
    finally:
        other.clean()


def start_rank(pool, rank, *words, ranks=3, run_name="first", folder=None):
    return subprocess.Popen(
        [BIN / "stdchk", "restart", "--rank", str(rank), "--ranks", str(ranks), "--run", run_name, *words,
         folder or pool.mount, "--", "sh", "-c", "date +%s.%N; echo $STDCHK_RESTART_SET"],
        env=pool.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def restarted_by(pool, ranks, *words, folder=None):
    """The values of STDCHK_RESTART_SET in `ranks` restarting ranks."""
    started = [start_rank(pool, rank, *words, ranks=ranks, run_name=f"by-{ranks}", folder=folder)
               for rank in range(ranks)]
    ends = [rank.communicate(timeout=60) for rank in started]
    assert [rank.returncode for rank in started] == [0] * ranks, ends
    return [out.split()[1] for out, _ in ends]


def test_no_rank_goes_on_before_all_have_their_images(pool):
    pool.up("--policy", "images=3", benefactors=2, memory="64M", drain=False)
    write_set(pool.mount, 7)
    local = pool.folder / "local"
    local.mkdir()
    ranks = [start_rank(pool, rank, "--to", local) for rank in (0, 1)]
    time.sleep(1)
    late = time.time()
    ranks.append(start_rank(pool, 2, "--to", local))
    ends = [rank.communicate(timeout=60) for rank in ranks]
    for out, err in ends:
        when, name = out.split()
        assert name == "app.*.T7" and float(when) > late, err
    assert "app.*.T7: 3 images loaded by 3 ranks" in ends[0][1]
    for rank in range(3):
        assert run("cmp", local / f"app.N{rank}.T7", pool.mount / f"app.N{rank}.T7").returncode == 0
    # The barrier leaves no file behind, and another number of ranks reads the same set.
    assert not list(pool.mount.glob(".stdchk-restart-*"))
    assert restarted_by(pool, 2) == ["app.*.T7"] * 2
    pool.down()


def test_ranks_of_a_requeued_job_do_not_meet_those_of_the_run_before(pool):
    """The pool outlives the job. Job and step numbers are the same in the second run."""
    pool.up("--policy", "images=2", benefactors=1, memory="64M", drain=False)
    write_set(pool.mount, 7, ranks=2)
    for rank in (0, 1):
        (pool.mount / ".stdchk-restart-77.0" / f"{rank}@app.*.T7").mkdir(parents=True)

    def start(rank):
        return subprocess.Popen(
            [BIN / "stdchk", "restart", "--timeout", "20", pool.mount, "--", "date", "+%s.%N"],
            env=pool.environment | {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1",
                                    "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    ranks = [start(0)]
    time.sleep(1)
    late = time.time()
    ranks.append(start(1))
    for out, err in [rank.communicate(timeout=60) for rank in ranks]:
        assert err.count("rank") <= 2 and float(out) > late, err
    pool.down()


def test_what_storage_refuses_at_close_is_not_loaded(pool):
    """Imitates NFS, which may report missing room only at close."""
    pool.up("--policy", "images=1", benefactors=1, memory="64M", drain=False)
    (pool.mount / "app.N0.T1").write_bytes(b"FULL" * MIB)
    with troubled(pool.folder) as storage:
        storage.rules("flush FULL")
        assert "app.N0.T1 cannot be written: No space left" in restart_alone(pool, storage.point, 2).stderr
        storage.rules()
        restart_alone(pool, storage.point, 0)
    pool.down()


def restart_alone(pool, to, status):
    done = pool.stdchk("restart", "--rank", 0, "--ranks", 1, "--run", f"to-{status}", "--to", to, pool.mount, check=False)
    assert done.returncode == status, done.stderr
    return done


def test_one_rank_that_cannot_load_stops_all(pool):
    pool.up("--policy", "images=3", benefactors=2, memory="64M", drain=False)
    write_set(pool.mount, 7)
    began = time.monotonic()
    ranks = [start_rank(pool, 0), start_rank(pool, 1, "--to", "/nowhere"), start_rank(pool, 2)]
    ends = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2, 2]
    assert "/nowhere/app.N1.T7 cannot be made" in ends[1][1]
    assert re.search("rank [12] could not load its images", ends[0][1])
    assert time.monotonic() - began < 30
    # The wait for a rank that never comes ends after --timeout.
    alone = start_rank(pool, 0, "--timeout", "1", run_name="alone")
    assert "1 of 3 ranks" in alone.communicate(timeout=60)[1]
    pool.down()


def test_without_a_whole_set_the_program_begins_anew(pool):
    pool.up("--policy", "images=3", benefactors=2, memory="64M", drain=False)
    alone = start_rank(pool, 0, ranks=1)
    assert alone.communicate(timeout=60)[0].split()[1] == "none"
    pool.down()


def sets_of(pool, folder):
    found = json.loads(pool.stdchk("set", "list", "--json", folder).stdout)["sets"]
    return {one["set"]: (one["complete"], one["latest"]) for one in found}


@pytest.mark.parametrize("images", [2, 5, None])
def test_another_number_of_ranks_restarts_from_the_drained_set(pool, images):
    drained = drained_pool(pool, 1, 2)
    assert os.readlink(drained / "latest") == "app.*.T2"
    before = drained_as(pool)
    pool.up(*(["--policy", f"images={images}"] if images else []), benefactors=2, memory="64M")
    folder = pool.mount / "run"
    wait_until(lambda: leads_to(folder / "latest", "app.*.T2"), "the link")
    # The other set does not record its number of images.
    assert sets_of(pool, folder) == {"app.*.T2": (True, True), "app.*.T1": (False, False)}
    listed = pool.stdchk("set", "list", folder).stdout
    assert "3/3" in listed and "restart --set 'app.*.T1'" in listed
    local = pool.folder / "local"
    local.mkdir()
    ranks = images or 3
    assert restarted_by(pool, ranks, "--to", local, folder=folder) == ["app.*.T2"] * ranks
    assert sorted(path.name for path in local.iterdir()) == [f"app.N{rank}.T2" for rank in range(3)]
    for rank in range(3):
        assert run("cmp", drained / f"app.N{rank}.T2", local / f"app.N{rank}.T2").returncode == 0
    found = json.loads(pool.stdchk("restart-test", "--json", folder).stdout)
    assert (found["set"], found["images"]) == ("app.*.T2", 3)
    assert restarted_by(pool, 1, "--set", "app.*.T1", folder=folder) == ["app.*.T1"]
    pool.stdchk("drain", "--wait", pool.mount)
    assert {name: of for name, of in drained_as(pool).items() if name.name != "latest"} == {
        name: of for name, of in before.items() if name.name != "latest"}
    assert os.readlink(drained / "latest") == "app.*.T2"
    # Rewriting an image makes its set incomplete, in the pool and in the drain directory.
    write_set(folder, 2, ranks=1)
    assert sets_of(pool, folder)["app.*.T2"] == (False, False) and not (folder / "latest").is_symlink()
    pool.stdchk("drain", "--wait", pool.mount)
    assert not (drained / "latest").is_symlink()
    pool.down()


def test_half_a_drained_set_is_no_whole_one_of_fewer_ranks(pool):
    pool.up("--policy", "images=3", benefactors=2, memory="64M")
    folder = pool.mount / "run"
    write_set(folder, 1, ranks=2)
    pool.down("--drain")
    drained = pool.drain / "run"
    assert sorted(path.name for path in drained.glob("app.*")) == ["app.N0.T1", "app.N1.T1"]
    assert not (drained / "latest").is_symlink()
    pool.up("--policy", "images=2", benefactors=2, memory="64M")
    pool.stdchk("drain", "--wait", pool.mount)
    assert sets_of(pool, folder) == {"app.*.T1": (False, False)}
    assert not (folder / "latest").is_symlink() and not (drained / "latest").is_symlink()
    assert restarted_by(pool, 2, folder=folder) == ["none"] * 2
    assert "no set in that folder is complete" in pool.stdchk("restart-test", folder, check=False).stderr
    assert restarted_by(pool, 2, "--set", "app.*.T1", folder=folder) == ["app.*.T1"] * 2
    write_set(folder, 1, ranks=2)
    assert restarted_by(pool, 2, folder=folder) == ["app.*.T1"] * 2
    pool.stdchk("drain", "--wait", pool.mount)
    assert os.readlink(drained / "latest") == "app.*.T1"
    pool.down()


def test_a_whole_set_stays_so_when_its_folder_asks_for_another_number(pool):
    pool.up("--policy", "images=3", benefactors=2, memory="64M")
    folder = pool.mount / "run"
    write_set(folder, 1)
    for images in ("5", "2", "unknown", "5"):
        pool.stdchk("policy", "set", folder, f"images={images}")
        pool.stdchk("drain", "--wait", pool.mount)
        assert sets_of(pool, folder) == {"app.*.T1": (True, True)}
        assert os.readlink(folder / "latest") == os.readlink(pool.drain / "run" / "latest") == "app.*.T1"
    pool.kill("manager")
    restart_manager(pool)
    assert restarted_by(pool, 5, folder=folder) == ["app.*.T1"] * 5
    write_set(folder, 2)
    assert restarted_by(pool, 5, folder=folder) == ["app.*.T1"] * 5
    write_set(folder, 2, ranks=5)
    assert restarted_by(pool, 5, folder=folder) == ["app.*.T2"] * 5
    pool.down()


# Replaces ssh: the "host" is this machine. Some hosts answer late, hang, or never answer.
FAKE_SHELL = """#!/bin/sh
host=$1; shift
case $host in late | absent) until [ -s "$0.ends" ]; do sleep 0.1; done; sleep 0.5 ;; esac
case $host in
  hangs) echo $$ >"$0.hangs"; exec sleep 600 ;;
  absent) echo "connect to host absent: no route" >&2; exit 255 ;;
esac
script=$(cat)
case $* in *secret*) exit 3 ;; esac
echo "$host $(echo "$script" | grep -o "'--load' '[0-9,]*'")" >>"$0.said"
echo "$script" | "$@"
status=$?
echo "$host $(date +%s.%N)" >>"$0.ends"
exit $status
"""


def fake_shell(pool):
    shell = pool.folder / "shell"
    shell.write_text(FAKE_SHELL)
    shell.chmod(0o755)
    return shell


def restart_on(pool, shell, hosts, *words, **options):
    return pool.stdchk("restart", "--hosts", hosts, "--rsh", shell, *words, pool.mount, "--", "sh", "-c",
                       "date +%s.%N; echo $STDCHK_RESTART_SET", **options)


def test_no_rank_goes_on_before_all_hosts_have_loaded(pool):
    pool.up("--policy", "images=3", benefactors=2, memory="64M", drain=False)
    for timestep in (6, 7):
        write_set(pool.mount, timestep)
    shell = fake_shell(pool)
    local = pool.folder / "local"
    local.mkdir()
    # The hosts' folder for temporary files, without files of other tests.
    temporary = pool.folder / "temporary"
    temporary.mkdir()
    pool.environment["TMPDIR"] = str(temporary)
    # Three ranks on three hosts, two of them the same; the hosts need no state of the pool.
    done = restart_on(pool, shell, "one,late,one", "--to", local)
    when, name = done.stdout.split()
    assert name == "app.*.T7"
    assert "app.*.T7: 3 images" in done.stderr and "3 ranks on 2 nodes" in done.stderr
    assert "the last was late" in done.stderr
    ends = dict(line.split() for line in pathlib.Path(f"{shell}.ends").read_text().splitlines())
    assert float(when) > float(ends["late"]) > float(ends["one"])
    assert sorted(pathlib.Path(f"{shell}.said").read_text().splitlines()) == [
        "late '--load' '1'", "one '--load' '0,2'"]
    for rank in range(3):
        assert run("cmp", local / f"app.N{rank}.T7", pool.mount / f"app.N{rank}.T7").returncode == 0
    # Hosts come from a file, such as PBS_NODEFILE, and the set is another one.
    hosts = pool.folder / "hosts"
    hosts.write_text("one  # the first\n\none\nlate\n")
    done = restart_on(pool, shell, hosts, "--set", "app.*.T6", "--to", local)
    assert done.stdout.split()[1] == "app.*.T6" and (local / "app.N2.T6").exists()
    # Neither the secret nor its folder remains.
    assert not list(temporary.iterdir())
    assert not list(pool.mount.glob(".stdchk-restart-*"))
    pool.down()


def test_one_host_that_fails_ends_all(pool):
    pool.up("--policy", "images=3", benefactors=2, memory="64M", drain=False)
    write_set(pool.mount, 7)
    shell = fake_shell(pool)
    began = time.monotonic()
    done = restart_on(pool, shell, "one,hangs,absent", check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [
        "stdchk: absent: connect to host absent: no route",
        "stdchk: no rank goes on: 1 of 3 nodes have loaded their images",
        "stdchk: app.*.T7 was not loaded"]
    assert time.monotonic() - began < 15
    hanging = pathlib.Path(f"{shell}.hangs")
    assert not is_running(int(hanging.read_text()))
    # Reports the error of the command on the host.
    done = restart_on(pool, shell, "one,two", "--to", "/nowhere", check=False)
    assert re.search(r"^stdchk: (one|two): /nowhere/app.N[02].T7 cannot be made", done.stderr, re.MULTILINE)
    assert "0 of 2 nodes" in done.stderr
    # The wait for a hanging host ends after --timeout.
    done = restart_on(pool, shell, "one,hangs", "--timeout", "2", check=False)
    assert done.returncode == 2 and "hangs: " in done.stderr and "did not end within 2 s" in done.stderr
    # A signal also ends the commands on hosts.
    hanging.unlink()
    waiting = subprocess.Popen([BIN / "stdchk", "restart", "--hosts", "one,hangs", "--rsh", shell, pool.mount],
                               env=pool.environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: hanging.exists() and hanging.read_text(), "the host that hangs")
    waiting.terminate()
    assert "no rank goes on" in waiting.communicate(timeout=30)[1] and waiting.returncode == 2
    assert not is_running(int(hanging.read_text()))
    for hosts, words in (("one,-oProxyCommand=x", "neither a host name"), ("/nowhere/hosts", "neither a host name")):
        assert words in restart_on(pool, shell, hosts, check=False).stderr
    pool.down()


def test_hosts_load_a_drained_set_from_a_new_pool(pool):
    drained = drained_pool(pool, 1, 2)
    pool.up("--policy", "images=3", benefactors=1, memory="64M")
    local = pool.folder / "local"
    local.mkdir()
    run_folder = pool.mount / "run"
    pool.stdchk("restart", "--hosts", "one,two,three", "--rsh", fake_shell(pool), "--to", local, run_folder)
    for rank in range(3):
        assert run("cmp", local / f"app.N{rank}.T2", drained / f"app.N{rank}.T2").returncode == 0
    pool.down()


def test_hosts_time_the_loading_of_a_set_that_is_drained_or_in_memory(pool):
    drained = drained_pool(pool, 1, 2)
    pool.up("--policy", "images=3", benefactors=2, memory="64M")
    shell = fake_shell(pool)
    total = 3 * 2 * MIB + 3

    def time_on(hosts, *words, **options):
        return pool.stdchk("restart-test", "--hosts", hosts, "--rsh", shell, *words, pool.mount / "run", **options)

    def read_so_far():
        told = json.loads(pool.stdchk("report", "--json", pool.mount).stdout)
        return told["read_pool_bytes"], told["read_drained_bytes"]

    found = json.loads(time_on("one,two,one", "--json").stdout)
    assert (found["set"], found["images"], found["bytes"]) == ("app.*.T2", 3, total)
    assert (found["ranks"], found["nodes"]) == (3, 2) and found["slowest_node"] in ("one", "two")
    assert found["seconds"] > 0 and found["mb_per_s"] > 0
    assert read_so_far() == (0, total)
    assert sorted(pathlib.Path(f"{shell}.said").read_text().splitlines()) == [
        "one '--load' '0,2'", "two '--load' '1'"]
    pool.stdchk("stage-in", drained)
    before = read_so_far()
    said = time_on("one,two,late").stdout
    assert "app.*.T2: 3 images" in said and "for 3 ranks on 3 nodes" in said and "the last was late" in said
    assert read_so_far() == (before[0] + total, before[1])
    assert "app.*.T1: 3 images" in time_on("one", "--set", "app.*.T1").stdout
    done = time_on("one,absent", check=False)
    assert done.returncode == 2 and "app.*.T2 was not loaded" in done.stderr and done.stdout == ""
    done = pool.stdchk("restart-test", "--hosts", "one", "--rsh", shell, pool.mount, check=False)
    assert done.returncode == 2 and "no set in that folder is complete" in done.stderr
    pool.down()


def test_on_hosts_without_a_whole_set_the_program_begins_anew(pool):
    pool.up("--policy", "images=3", benefactors=2, memory="64M", drain=False)
    write_set(pool.mount, 1, ranks=2)
    done = restart_on(pool, fake_shell(pool), "one")
    assert done.stdout.split()[1] == "none" and "no set in that folder is complete" in done.stderr
    pool.down()


def test_status_speaks_to_prometheus(pool):
    pool.up(benefactors=2, memory="64M")
    write_set(pool.mount, 1, ranks=1)
    text = pool.stdchk("status", "--prometheus", pool.mount).stdout
    values = dict(re.findall(r"^(stdchk_\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE))
    assert values["stdchk_up"] == "1" and values["stdchk_mounted"] == "1"
    assert float(values["stdchk_logical_bytes"]) == 2 * MIB
    assert text.count("\nstdchk_benefactor_up{") == 2
    # Each metric has one head, before its lines.
    heads = re.findall(r"^# TYPE (\S+) (?:gauge|counter)$", text, re.MULTILINE)
    assert sorted(heads) == sorted(set(heads)) == sorted(values)
    assert all(re.fullmatch(r'(# (HELP|TYPE) .*|stdchk_\w+\{pool="[^"]*".*\} \S+)', line)
               for line in text.splitlines())
    pool.kill("manager")
    gone = pool.stdchk("status", "--prometheus", pool.mount, check=False)
    assert gone.returncode == 1 and 'stdchk_up{' in gone.stdout and gone.stdout.count("} 0") >= 1
    pool.down(check=False)


def test_striping_is_set_once_where_there_is_lfs(pool):
    bin_dir = pool.folder / "lustre"
    bin_dir.mkdir()
    (bin_dir / "lfs").write_text(f'#!/bin/sh\necho "$@" >>{pool.folder}/said\n')
    (bin_dir / "lfs").chmod(0o755)
    pool.environment["PATH"] = f"{bin_dir}:{pool.environment['PATH']}"
    pool.up(benefactors=1, memory="64M")
    for timestep in (1, 2):
        write_set(pool.mount, timestep, ranks=2)
    pool.stdchk("drain", "--wait", pool.mount)
    said = (pool.folder / "said").read_text().splitlines()
    assert len(said) == 1
    words = said[0].split()
    assert words[0] == "setstripe" and words[-1] == str(pool.drain / ".stdchk-drain")
    # Smaller files use fewer targets. The sizes ascend, and the last part has no end.
    assert [words[i + 1] for i, word in enumerate(words) if word == "-E"] == ["256M", "4G", "64G", "eof"]
    assert [words[i + 1] for i, word in enumerate(words) if word == "-c"] == ["1", "4", "16", "-1"]
    pool.down()


def images_in(folder):
    return sorted(path.name for path in folder.iterdir() if re.fullmatch(r"app\.N\d+\.T\d+", path.name))


def test_a_job_that_ends_well_leaves_what_the_policy_says(pool):
    pool.up("--policy", "images=2,end=remove", benefactors=2, memory="64M")
    for name, policy in (("gone", "end=remove"), ("last", "end=last"), ("kept", "end=keep"), ("none", "end=remove")):
        (pool.mount / name).mkdir()
        pool.stdchk("policy", "set", pool.mount / name, policy)
    for timestep in (1, 2):
        write_set(pool.mount / "gone", timestep, ranks=2)
        write_set(pool.mount / "last", timestep, ranks=2)
    write_set(pool.mount / "kept", 1, ranks=2)
    write_set(pool.mount / "none", 1, ranks=2)
    (pool.mount / "gone" / "result").write_text("42\n")
    pool.stdchk("set", "pin", f"{pool.mount}/gone/app.*.T1")
    pool.stdchk("drain", "--wait", pool.mount)
    write_set(pool.mount / "gone", 3, ranks=2)  # its drain may be running
    done = pool.stdchk("down", "--success", pool.mount)
    assert "8 images of the job that has ended well were removed" in done.stdout
    assert images_in(pool.drain / "gone") == ["app.N0.T1", "app.N1.T1"]
    assert (pool.drain / "gone" / "result").read_text() == "42\n"
    assert images_in(pool.drain / "last") == ["app.N0.T2", "app.N1.T2"]
    assert images_in(pool.drain / "kept") == ["app.N0.T1", "app.N1.T1"]
    assert images_in(pool.drain / "none") == [] and not (pool.drain / "none" / "latest").is_symlink()
    latest = {name: (pool.drain / name / "latest").readlink().name for name in ("gone", "last", "kept")}
    assert latest == {"gone": "app.*.T1", "last": "app.*.T2", "kept": "app.*.T1"}
    # The manifests list exactly the existing files.
    assert run(BIN / "stdchk", "verify", pool.drain).returncode == 0


def test_what_must_be_drained_is_drained_before_it_could_be_removed(pool):
    pool.up("--policy", "images=2,end=remove,must-be-drained=yes", "--drain-rate", "1M", benefactors=2, memory="64M")
    write_set(pool.mount / "run", 1, ranks=2)
    done = pool.stdchk("down", "--success", pool.mount)
    assert "app.*.T1 stays: it must be drained and is not yet" in done.stdout
    assert images_in(pool.drain / "run") == ["app.N0.T1", "app.N1.T1"]
