"""Tests checkpoints that are directories: completeness, the order of the drain, and the files that a lost pool leaves.
Also tests rules of sets that later pools find in the drain directory."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import restart_manager
from processes import is_running, wait_until

MIB = 1 << 20
RULES = ("set=directory", "set-names=step-*", "marker=.metadata", "pointer=latest")


def write_checkpoint(folder, step, shards=4, size=2 * MIB):
    """Writes files as PyTorch's distributed checkpoints have them: shards, then `.metadata` with their checksums,
    then the pointer. PyTorch, too, writes `.metadata.tmp` and renames it."""
    directory = folder / f"step-{step}"
    directory.mkdir()
    checksums = {}
    for rank in range(shards):
        content = os.urandom(size)
        (directory / f"__{rank}_0.distcp").write_bytes(content)
        checksums[f"__{rank}_0.distcp"] = hashlib.sha256(content).hexdigest()
    (directory / ".metadata.tmp").write_text(json.dumps(checksums))
    os.replace(directory / ".metadata.tmp", directory / ".metadata")
    (folder / "latest.new").write_text(directory.name)
    os.replace(folder / "latest.new", folder / "latest")


def load(folder):
    """Loads the checkpoint that the pointer names. Returns its name; None without a pointer."""
    if not (folder / "latest").exists():
        return None
    directory = folder / (folder / "latest").read_text()
    for name, checksum in json.loads((directory / ".metadata").read_text()).items():
        assert hashlib.sha256((directory / name).read_bytes()).hexdigest() == checksum, name
    return directory.name


def sets_of(pool, folder):
    found = json.loads(pool.stdchk("set", "list", "--json", folder).stdout)["sets"]
    return {one["set"]: one for one in found}


def lose(pool):
    """Kills all processes of the pool at once, and unmounts what is left."""
    pids = [member["pid"] for member in pool.record["members"]] + [one.pid for one in pool.hand_processes]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in pool.hand_processes:
        process.wait(10)
    wait_until(lambda: not any(map(is_running, pids)), "the end of the pool")
    unmount = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-uz"]
    subprocess.run([*unmount, pool.mount], check=False, capture_output=True)
    pool.stdchk("down", pool.mount, check=False)


def set_rules(pool, folder, *rules):
    folder.mkdir(exist_ok=True)
    return pool.stdchk("policy", "set", folder, *rules)


def wait_to_lose(there, moment):
    """Waits for the moment of the loss: a time in seconds, or the first file that matches a pattern."""
    if isinstance(moment, float):
        return time.sleep(moment)
    until = time.monotonic() + 60
    while not any(there.glob(moment)):
        assert time.monotonic() < until, f"no {moment} in {there}"
        time.sleep(0.002)


@pytest.mark.parametrize("moment", ["step-*/.metadata", "latest", 0.5, random.uniform(0.2, 6)],
                         ids=["at the first marker", "at the pointer", "early", "at random"])
def test_what_the_pointer_names_can_be_loaded_after_the_pool_was_lost_in_mid_drain(pool, moment):
    pool.up("--drain-rate", "6M", "--drain-yields", "off", benefactors=2, memory="128M")
    run, there = pool.mount / "run", pool.drain / "run"
    set_rules(pool, run, *RULES)
    for step in range(3):
        write_checkpoint(run, step, size=4 * MIB)
    assert load(run) == "step-2"
    wait_to_lose(there, moment)
    lose(pool)
    # A marker in the drain directory means: all files of its set are there.
    for marker in there.glob("step-*/.metadata"):
        for name, checksum in json.loads(marker.read_text()).items():
            assert hashlib.sha256((marker.parent / name).read_bytes()).hexdigest() == checksum
    load(there)


def test_a_killed_writer_leaves_a_set_that_is_not_complete(pool):
    pool.up(benefactors=2, memory="128M")
    run = pool.mount / "run"
    set_rules(pool, run, *RULES)
    write_checkpoint(run, 1)
    (run / "step-2").mkdir()
    writer = subprocess.Popen(["sh", "-c", f"exec 3>{run}/step-2/__0_0.distcp; head -c 1M /dev/zero >&3; "
                               "echo written; exec sleep 60"], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"written\n"
    writer.kill()
    writer.wait()
    wait_until(lambda: sets_of(pool, run)["step-1"]["complete"], "the first set")
    assert not sets_of(pool, run).get("step-2", {}).get("complete")
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert load(pool.drain / "run") == "step-1"


KILLED_WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(file, b"x" * 4096)
for path in sys.argv[2:]:
    with open(path, "w") as other:
        other.write("x")
print("written", flush=True)
time.sleep(60)
"""


def kill_with_open_file(folder, name, *closed):
    """A writer closes the files `closed`, and is killed while it has the file `name` open."""
    writer = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, folder / name, *(folder / one for one in closed)],
                              stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"written\n"
    writer.kill()
    writer.wait()


def test_a_writer_that_is_killed_after_the_marker_leaves_no_complete_set(pool):
    """CRIU closes some images after inventory.img, and ADIOS2 closes the index of BP4 after profiling.json."""
    pool.up(benefactors=1, memory="64M", drain=False)
    run = pool.mount / "run"
    set_rules(pool, run, "preset=criu")
    for dump in ("early", "late"):
        (run / dump).mkdir()
    kill_with_open_file(run / "late", "files.img", "pages.img", "inventory.img")
    # Here the marker follows the loss: another process has written what is needed.
    kill_with_open_file(run / "early", "files.img")
    (run / "early" / "pages.img").write_text("x")
    (run / "early" / "inventory.img").write_text("x")
    wait_until(lambda: os.path.islink(run / "latest"), "the link")

    def complete():
        return {name: one["complete"] for name, one in sets_of(pool, run).items()}

    assert complete() == {"early": True, "late": False}
    pool.kill("manager")
    restart_manager(pool)
    wait_until(lambda: complete() == {"early": True, "late": False}, "the sets of the restarted manager")
    (run / "late" / "inventory.img").write_text("x")
    wait_until(lambda: complete()["late"], "the set with the marker written again")


@contextlib.contextmanager
def sets_that_come_and_go(folder):
    """Meanwhile another thread makes and removes sets."""
    ends = threading.Event()

    def change():
        for step in range(1, 1_000_000):
            if ends.is_set():
                return
            write_checkpoint(folder, step, shards=1, size=100)
            shutil.rmtree(folder / f"step-{step}")

    changing = threading.Thread(target=change)
    changing.start()
    try:
        yield
    finally:
        ends.set()
        changing.join()


def test_questions_leave_out_directories_that_are_removed_meanwhile(pool):
    pool.up(benefactors=2, memory="128M")
    run = pool.mount / "run"
    set_rules(pool, run, *RULES)
    with sets_that_come_and_go(run):
        for _ in range(30):
            pool.stdchk("set", "list", run)
            pool.stdchk("status", "--json", pool.mount)


def test_keep_and_pin_and_commit_work_on_directories(pool):
    pool.up(benefactors=2, memory="128M")
    run = pool.mount / "run"
    set_rules(pool, run, "set=directory", "set-names=step-*", "marker=.metadata", "keep=1")
    write_checkpoint(run, 1, size=100)
    pool.stdchk("set", "pin", run / "step-1")
    for step in (2, 3):
        write_checkpoint(run, step, size=100)
    wait_until(lambda: set(sets_of(pool, run)) == {"step-1", "step-3"}, "the removal of step-2")
    pool.stdchk("set", "unpin", run / "step-1")
    wait_until(lambda: set(sets_of(pool, run)) == {"step-3"}, "the removal of step-1")
    (run / "step-4").mkdir()
    (run / "step-4" / "data").write_text("all of it")
    assert not sets_of(pool, run)["step-4"]["complete"]
    pool.stdchk("set", "commit", run / "step-4")
    wait_until(lambda: sets_of(pool, run).get("step-4", {}).get("complete"), "the commit")
    wait_until(lambda: not (run / "step-3").exists(), "the removal of step-3")


def test_rules_are_found_again_by_a_restarted_manager_and_by_the_next_pool(pool):
    pool.up(benefactors=1, memory="64M")
    run = pool.mount / "run"
    set_rules(pool, run, *RULES, "keep=2")
    pool.kill("manager")
    restart_manager(pool)

    def rules(folder):
        shown = json.loads(pool.stdchk("policy", "get", "--json", folder).stdout)
        return {key: shown[key]["value"] for key in ("set", "set-names", "marker", "pointer", "keep")}

    wanted = {"set": "directory", "set-names": "step-*", "marker": ".metadata", "pointer": "latest", "keep": "2"}
    wait_until(lambda: rules(run) == wanted, "the rules")
    write_checkpoint(run, 1, size=1000)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    lose(pool)
    assert not (pool.drain / "run" / ".stdchk-policy").exists()  # a link without a file behind it
    assert "marker=.metadata" in os.readlink(pool.drain / "run" / ".stdchk-policy")
    pool.up(benefactors=1, memory="64M")
    assert rules(run) == wanted
    assert sets_of(pool, run)["step-1"]["complete"]
    assert sorted(os.listdir(run)) == ["latest", "step-1"]


def test_the_next_pool_finds_the_policy_of_the_top_folder(pool):
    pool.up(benefactors=1, memory="64M")
    pool.stdchk("policy", "set", pool.mount, *RULES, "keep=5", "must-be-drained=yes")
    (pool.mount / "file").write_text("bytes")
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    lose(pool)
    pool.up(benefactors=1, memory="64M")
    shown = json.loads(pool.stdchk("policy", "get", "--json", pool.mount).stdout)
    wanted = {"set-names": "step-*", "marker": ".metadata", "keep": "5", "must-be-drained": "yes"}
    assert {key: shown[key]["value"] for key in wanted} == wanted


def test_names_by_pattern_and_presets(pool):
    pool.up(benefactors=1, memory="64M")
    lammps = pool.mount / "lammps"
    lammps.mkdir()
    for name in ("r.0100.base", "r.0100.0", "r.0100.1", "r.0200.0"):
        (lammps / name).write_text(name)
    said = pool.stdchk("policy", "suggest", lammps).stdout
    assert "preset=lammps images=2" in said
    pool.stdchk("policy", "set", lammps, "preset=lammps", "images=2")
    wait_until(lambda: os.path.islink(lammps / "latest"), "the link")
    assert os.readlink(lammps / "latest") == "r.0100.*"
    assert sets_of(pool, lammps)["r.0100.*"]["complete"]
    assert not sets_of(pool, lammps)["r.0200.*"]["complete"]
    with pytest.raises(OSError):
        (lammps / "latest").write_text("a stray file")
    assert sorted(os.listdir(lammps))[-1] == "r.0200.0"
    idle = pool.stdchk("policy", "set", lammps, "series=restart.{T}.{N}")
    assert "no file matches series=restart.{T}.{N}" in idle.stderr
    refused = pool.stdchk("policy", "set", lammps, "series=restart.{N}", check=False)
    assert refused.returncode != 0
    assert "it has no {T}" in refused.stderr


def test_two_names_of_one_rank_are_never_two_members(pool):
    pool.up(benefactors=1, memory="64M")
    app = pool.mount / "app"
    app.mkdir()
    pool.stdchk("policy", "set", app, "images=2")
    for name in ("a.N0.T1", "a.N00.T1", "b.N0.T007", "b.N1.T007"):
        (app / name).write_text(name)
    wait_until(lambda: os.path.islink(app / "latest"), "the link")
    assert os.readlink(app / "latest") == "b.*.T007"
    assert not sets_of(pool, app)["a.*.T1"]["complete"]


def test_a_set_that_must_be_drained_counts_only_then_and_safe_names_what_is_missing(pool):
    pool.up("--drain-rate", "2M", "--drain-yields", "off", benefactors=2, memory="128M")
    run = pool.mount / "run"
    set_rules(pool, run, *RULES, "must-be-drained=yes", "keep=1")
    write_checkpoint(run, 1, shards=2)
    safe = pool.stdchk("safe", "--json", run / "step-1", check=False)
    assert safe.returncode != 0
    assert not json.loads(safe.stdout)["safe"]
    assert not sets_of(pool, run)["step-1"]["complete"]
    wait_until(lambda: sets_of(pool, run)["step-1"]["complete"], "the drain of the first set", 60)
    told = json.loads(pool.stdchk("safe", "--json", run / "step-1").stdout)
    assert told == {"safe": True, "files": 3, "unsafe": []}
    assert load(pool.drain / "run") == "step-1"
    # The first set stays until the second is drained, although keep=1.
    write_checkpoint(run, 2, shards=4)
    assert sets_of(pool, run)["step-1"]["complete"]
    wait_until(lambda: set(sets_of(pool, run)) == {"step-2"}, "the removal of the first set", 60)
    pool.stdchk("safe", run / "step-2")
    # A file that somebody removes in the drain directory makes the whole directory unsafe.
    (pool.drain / "run" / "step-2" / "__1_0.distcp").unlink()
    unsafe = json.loads(pool.stdchk("safe", "--json", run / "step-2", check=False).stdout)
    assert [one["path"] for one in unsafe["unsafe"]] == ["run/step-2/__1_0.distcp"]
    assert unsafe["unsafe"][0]["missing"]


def test_sets_that_can_never_be_complete_are_told_by_set_list_and_doctor(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    run, md = pool.mount / "run", pool.mount / "md"
    set_rules(pool, run, *RULES)
    set_rules(pool, md, "images=2", "must-be-drained=yes")
    (run / "iter_1").mkdir()
    for name in ("a.N0.T1", "a.N00.T1", "a.N1.T1"):
        (md / name).write_text(name)

    def warnings(folder):
        told = pool.stdchk("set", "list", folder).stderr
        assert len(told.splitlines()) == len(json.loads(pool.stdchk("set", "list", "--json", folder).stdout)["warnings"])
        return told

    assert "no subdirectory matches set-names=step-*" in warnings(run)
    assert "must-be-drained=yes, and this pool has no drain directory" in warnings(md)
    assert "the set a.*.T1 can never be complete: a.N0.T1 and a.N00.T1" in warnings(md)
    found = json.loads(pool.stdchk("doctor", "--json", pool.mount, check=False).stdout)
    (sets,) = [finding for finding in found if finding["what"] == "sets"]
    assert sets["state"] == "note"
    assert [one["path"] for one in sets["figures"]] == ["md", "run"]
    (run / "step-1").mkdir()
    (md / "a.N00.T1").unlink()
    pool.stdchk("policy", "set", md, "must-be-drained=no")
    assert warnings(run) == warnings(md) == ""
    found = json.loads(pool.stdchk("doctor", "--json", pool.mount, check=False).stdout)
    assert [one["state"] for one in found if one["what"] == "sets"] == ["good"]


def test_what_keeps_sets_from_being_complete_is_told_by_set_list_and_doctor(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    md, deep = pool.mount / "md", pool.mount / "deep"
    set_rules(pool, md, "images=3")
    set_rules(pool, deep, "preset=lammps-single")

    def told():
        found = json.loads(pool.stdchk("doctor", "--json", pool.mount, check=False).stdout)
        (sets,) = [finding for finding in found if finding["what"] == "sets"]
        return {one["path"]: one["warnings"] for one in sets.get("figures", [])}

    for name in ("a.N0.T1", "a.N2.T1", "a.N0.T2"):
        (md / name).write_text(name)
    assert {one["set"]: one["problem"] for one in json.loads(pool.stdchk("set", "list", "--json", md).stdout)["sets"]} == {
        "a.*.T1": "it has 2 of 3 images; rank 1 is missing", "a.*.T2": "it has 1 of 3 images; ranks 1, 2 are missing"}
    assert "it has 2 of 3 images; rank 1 is missing" in pool.stdchk("set", "list", md).stdout
    assert told() == {"md": ["the newest 2 sets are not complete. a.*.T1: it has 2 of 3 images; rank 1 is missing"]}
    # The preset matches no file of the subfolder.
    (deep / "run1").mkdir()
    (deep / "run1" / "restart.equil").write_text("bytes")
    for rank in range(3):
        (md / f"a.N{rank}.T3").write_text("bytes")
    # Incomplete sets of killed jobs do not matter after a complete set.
    assert told() == {"deep": ["no file below matches series={A}.{T}"]}
    (deep / "run1" / "restart.1000").write_text("bytes")
    assert told() == {}


def test_folders_whose_names_ask_for_a_policy_are_told_by_doctor_and_advise(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    for step in (1, 2):
        for name in (f"train/step-{step}/.metadata", f"train/step-{step}/__0_0.distcp", f"md/melt.{step}.0",
                     f"md/melt.{step}.base", f"logs/log.{step}"):
            (pool.mount / name).parent.mkdir(parents=True, exist_ok=True)
            (pool.mount / name).write_text(name)

    def told():
        found = json.loads(pool.stdchk("doctor", "--json", pool.mount, check=False).stdout)
        (sets,) = [finding for finding in found if finding["what"] == "sets"]
        return sets["state"], {one["path"]: one["suggested"] for one in sets.get("figures", [])}

    assert told() == ("note", {"train": "preset=dcp", "md": "preset=lammps images=1"})
    advice = ("advise", "--nodes", 2, "--memory", "1M", "--measure-time", 1, "--measure-size", "4M", "--table", 8)
    said = pool.stdchk(*advice, "--mount", pool.mount).stdout
    assert "/train: preset=dcp, as its names are those of PyTorch distributed checkpoints" in said
    found = json.loads(pool.stdchk(*advice, "--json", "--mount", pool.mount).stdout)
    assert {"path": "md", "settings": "preset=lammps images=1"} in found["policies"]
    pool.stdchk("policy", "set", pool.mount / "train", "preset=dcp")
    pool.stdchk("policy", "set", pool.mount / "md", "preset=lammps", "images=1")
    assert told() == ("good", {})


def test_old_directories_are_purged_and_the_newest_stays(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    run = pool.mount / "run"
    set_rules(pool, run, *RULES, "purge-after=3s")
    write_checkpoint(run, 1, shards=1, size=1000)
    write_checkpoint(run, 2, shards=1, size=1000)
    assert set(sets_of(pool, run)) == {"step-1", "step-2"}
    wait_until(lambda: set(sets_of(pool, run)) == {"step-2"}, "the removal of the first set", 20)
    assert load(run) == "step-2"
    time.sleep(4)
    assert set(sets_of(pool, run)) == {"step-2"}


def test_every_second_directory_is_drained(pool):
    pool.up(benefactors=1, memory="64M")
    run = pool.mount / "run"
    set_rules(pool, run, *RULES, "drain-every=2")
    for step in range(1, 5):
        write_checkpoint(run, step, shards=1, size=1000)
        wait_until(lambda: sets_of(pool, run).get(f"step-{step}", {}).get("complete"), "the set")
    there = pool.drain / "run"
    wait_until(lambda: len(list(there.glob("step-*/.metadata"))) == 2, "two sets in the drain directory", 20)
    time.sleep(2)
    drained = sorted(marker.parent.name for marker in there.glob("step-*/.metadata"))
    assert drained == ["step-1", "step-3"]
    # A wait for the drain drains the newest set, even where the policy leaves it out.
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert load(there) == "step-4"
