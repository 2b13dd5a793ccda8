"""Tests `restart`, `restart-test`, `stage-in` and the policy `end` with directories, which have a marker and a pointer,
and with names by a pattern."""

import filecmp
import json
import os
import stat
import subprocess

import pytest
from conftest import Pool
from pool_directory_sets_test import RULES, lose, set_rules, sets_of, write_checkpoint
from pool_restart_test import fake_shell
from processes import BIN, run, wait_until

MIB = 1 << 20
SETS = {  # names of a set's files with a {} for the timestep, the rules, and the set's name
    "directory": (("step-{}/a/0.bin", "step-{}/a/1.bin", "step-{}/.metadata"), RULES, "step-{}"),
    "pattern": (("melt.{}.0", "melt.{}.1", "melt.{}.base"), ("preset=lammps", "images=2"), "melt.{}.*"),
    "file": (("md_step{}.cpt",), ("preset=gromacs",), "md_step{}.cpt"),
}


def write_set(folder, kind, timestep):
    names, _, name = SETS[kind]
    for file in names:
        path = folder / file.format(timestep)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(MIB + len(file)))
    return name.format(timestep)


def make_folder(pool, kind, *timesteps, settings=(), name=None):
    """A folder of complete sets of this kind. Returns the folder."""
    folder = pool.mount / (name or kind)
    set_rules(pool, folder, *SETS[kind][1], *settings)
    for timestep in timesteps:
        write_set(folder, kind, timestep)
    return folder


def is_same(one, other, names):
    return all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


def start_rank(pool, folder, rank, *words, ranks=2, run_name="first"):
    return subprocess.Popen(
        [BIN / "stdchk", "restart", "--rank", str(rank), "--ranks", str(ranks), "--run", run_name, *words, folder,
         "--", "sh", "-c", "echo $STDCHK_RESTART_SET"],
        env=pool.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def restart(pool, folder, *words, ranks=2, run_name="first"):
    """Restarts all ranks. Returns the set that each has found."""
    started = [start_rank(pool, folder, rank, *words, ranks=ranks, run_name=run_name) for rank in range(ranks)]
    ends = [one.communicate(timeout=60) for one in started]
    assert [one.returncode for one in started] == [0] * ranks, ends
    return [out.strip() for out, _ in ends]


@pytest.mark.parametrize("kind", SETS)
def test_ranks_restart_from_a_set_of_any_kind(pool, kind):
    pool.up(benefactors=2, memory="128M", drain=False)
    folder = make_folder(pool, kind, "0010", "0020")
    names = [name.format("0020") for name in SETS[kind][0]]
    wanted = SETS[kind][2].format("0020")
    wait_until(lambda: sets_of(pool, folder)[wanted]["complete"], "the set")
    # Each node gets a whole directory. With a pattern, each rank gets its own image and the base file.
    nodes = [pool.folder / f"node{rank}" for rank in (0, 1)]
    for node in nodes:
        node.mkdir()
    started = [start_rank(pool, folder, rank, "--to", nodes[rank]) for rank in (0, 1)]
    ends = [one.communicate(timeout=60) for one in started]
    assert [out.strip() for out, _ in ends] == [wanted] * 2, ends
    own = [[names[0], names[2]], [names[1], names[2]]] if kind == "pattern" else [names, names]
    for node, mine in zip(nodes, own, strict=True):
        assert sorted(str(path.relative_to(node)) for path in node.rglob("*") if path.is_file()) == sorted(mine)
        assert is_same(node, folder, mine)
    # An older set, by its name, without copies. The first set was not drained.
    older = SETS[kind][2].format("0010")
    assert restart(pool, folder, "--set", older, ranks=3, run_name="older") == [older] * 3
    found = json.loads(pool.stdchk("restart-test", "--json", folder).stdout)
    size = sum((folder / name).stat().st_size for name in names)
    assert (found["set"], found["images"], found["bytes"]) == (wanted, len(names), size)
    assert json.loads(pool.stdchk("restart-test", "--json", "--set", older, folder).stdout)["set"] == older
    refused = pool.stdchk("restart-test", "--set", "nothing", folder, check=False)
    assert refused.returncode == 2
    assert "there is no set nothing in that folder; stdchk set list shows the sets" in refused.stderr


def test_set_list_explains_images_of_an_earlier_pool_that_do_not_count(pool):
    pool.up(benefactors=1, memory="64M")
    folder = make_folder(pool, "pattern", 1)
    wait_until(lambda: sets_of(pool, folder)["melt.1.*"]["complete"], "the set")
    pool.down("--drain")
    (pool.drain / "pattern" / "latest").unlink()
    pool.up(benefactors=1, memory="64M")
    assert sets_of(pool, folder)["melt.1.*"]["images"] == 0
    assert "The images of melt.1.* do not count." in pool.stdchk("set", "list", folder).stdout
    pool.down()


def test_a_copy_has_the_holes_of_the_image(pool):
    pool.up(benefactors=1, memory="128M", drain=False)
    folder = make_folder(pool, "file")
    image = folder / "md_step1.cpt"
    with open(image, "wb") as file:
        file.write(os.urandom(MIB + 5))
        file.seek(300 * MIB)
        file.write(bytes(4 * MIB) + b"end")
        file.truncate(900 * MIB + 1)  # a hole at the end
    wait_until(lambda: sets_of(pool, folder)["md_step1.cpt"]["complete"], "the set")
    local = pool.folder / "local"
    local.mkdir()
    assert restart(pool, folder, "--to", local, ranks=1) == ["md_step1.cpt"]
    copy = local / "md_step1.cpt"
    assert copy.stat().st_size == 900 * MIB + 1
    assert copy.stat().st_blocks * 512 < 8 * MIB
    assert filecmp.cmp(copy, image, shallow=False)


def test_a_copy_of_a_directory_is_the_directory(pool):
    pool.up(benefactors=1, memory="128M", drain=False)
    folder = make_folder(pool, "directory", 1)
    step = folder / "step-1"
    (step / "empty").mkdir()
    (step / "parent").symlink_to("../step-0")
    (step / "again.sh").write_text("#!/bin/sh\n")
    (step / "again.sh").chmod(0o755)
    local = pool.folder / "local"
    local.mkdir()
    # Two ranks of one node copy to one folder.
    assert restart(pool, folder, "--to", local) == ["step-1"] * 2
    copy = local / "step-1"
    assert os.readlink(copy / "parent") == "../step-0"
    assert (copy / "empty").is_dir()
    assert stat.S_IMODE((copy / "again.sh").stat().st_mode) == 0o700
    assert not list(local.rglob(".stdchk-*"))
    assert is_same(copy, step, ["again.sh", ".metadata", "a/0.bin", "a/1.bin"])
    # A file of another checkpoint in the copy would make a mixture.
    (copy / "stray").write_text("old")
    alone = start_rank(pool, folder, 0, "--to", local, ranks=1, run_name="stray")
    assert f"{copy}/stray is no file of the set step-1. Remove {copy}, and start again" in alone.communicate(timeout=60)[1]
    assert alone.returncode == 2
    # Root's copy follows no link, and stays out of another user's folder.
    for planted in ("link", "folder"):
        other = pool.folder / planted
        other.mkdir()
        target = pool.folder / f"{planted}.target"
        target.mkdir()
        if planted == "link":
            (other / "step-1").symlink_to(target)
        else:
            (other / "step-1").mkdir()
            os.chown(other / "step-1", 65534, 65534)
        alone = start_rank(pool, folder, 0, "--to", other, ranks=1, run_name=planted)
        said = alone.communicate(timeout=60)[1]
        assert alone.returncode == 2, said
        assert "cannot be made" in said if planted == "link" else "belongs to another user (uid 65534)" in said
        assert not list(target.iterdir())


def test_hosts_copy_a_whole_directory_before_the_program_starts(pool):
    pool.up(benefactors=1, memory="128M", drain=False)
    folder = make_folder(pool, "directory", 1, 2)
    local, shell = pool.folder / "local", fake_shell(pool)
    local.mkdir()
    done = pool.stdchk("restart", "--hosts", "one,one,two", "--rsh", shell, "--to", local, folder, "--", "sh", "-c",
                       f"ls -A {local}/step-2; echo $STDCHK_RESTART_SET")
    assert done.stdout.split() == [".metadata", "a", "step-2"]
    assert "step-2: 3 files" in done.stderr
    assert is_same(local, folder, [name.format(2) for name in SETS["directory"][0]])
    found = json.loads(pool.stdchk("restart-test", "--json", "--hosts", "one,two", "--rsh", shell, folder).stdout)
    assert (found["set"], found["images"], found["nodes"]) == ("step-2", 3, 2)


def test_a_folder_that_is_itself_a_set_is_refused_with_the_command_to_use(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    folder = make_folder(pool, "directory", 1)
    for words in (["restart-test"], ["restart", "--rank", 0, "--ranks", 1, "--run", "x"]):
        done = pool.stdchk(*words, folder / "step-1", check=False)
        assert done.returncode == 2
        assert "step-1 is itself a set. Give the folder above it, and --set 'step-1'" in done.stderr


@pytest.mark.parametrize("kind", SETS)
def test_a_drained_set_of_any_kind_is_loaded_into_another_pool(pool, kind, tmp_path):
    pool.up(benefactors=2, memory="128M")
    folder = make_folder(pool, kind, "0010", "0020")
    if kind == "directory":
        (folder / "latest").write_text("step-0020\n")
    wait_until(lambda: sets_of(pool, folder)[SETS[kind][2].format("0020")]["complete"], "the set")
    pool.down("--drain")
    drained = pool.drain / kind
    names = {step: [name.format(step) for name in SETS[kind][0]] for step in ("0010", "0020")}
    other = Pool(tmp_path)
    try:
        other.up(benefactors=2, memory="128M", drain=False)
        set_rules(other, other.mount / "new", *SETS[kind][1])
        pointers = 1 if kind == "directory" else 0
        found = json.loads(other.stdchk("stage-in", "--json", "--to", other.mount / "new", drained).stdout)
        assert (found["files"], found["bad"]) == (len(names["0020"]) + pointers, [])
        assert is_same(other.mount / "new", drained, names["0020"])
        wanted = SETS[kind][2].format("0020")
        wait_until(lambda: sets_of(other, other.mount / "new")[wanted]["latest"], "the newest set")
        assert set(sets_of(other, other.mount / "new")) == {wanted}
        # The older set, by its name.
        older = SETS[kind][2].format("0010")
        (other.mount / "old").mkdir()
        found = json.loads(other.stdchk("stage-in", "--json", "--set", older, "--to", other.mount / "old", drained).stdout)
        assert (found["files"], found["bad"]) == (len(names["0010"]), [])
        assert is_same(other.mount / "old", drained, names["0010"])
        set_rules(other, other.mount / "all", *SETS[kind][1])
        other.stdchk("stage-in", "--all", "--to", other.mount / "all", drained)
        assert is_same(other.mount / "all", drained, names["0010"] + names["0020"])
        wait_until(lambda: sets_of(other, other.mount / "all")[wanted]["latest"], "the newest set of all")
        refused = other.stdchk("stage-in", "--set", "nothing", drained, check=False)
        assert refused.returncode == 2
        assert "or below is of the set nothing. A set has a name such as app.*.T7, or that of a directory" in refused.stderr
        other.down()
    finally:
        other.clean()


def links_in(folder):
    """The targets of all symbolic links below the folder, by path, without those of the pool."""
    return {str(path.relative_to(folder)): os.readlink(path) for path in folder.rglob("*")
            if path.is_symlink() and not path.name.startswith(".stdchk-")}


def test_drained_links_come_back_as_links_and_lead_no_command_outside(pool, tmp_path):
    pool.up(benefactors=2, memory="128M")
    folder = make_folder(pool, "directory", 1, 2)
    outside = pool.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("another user's")
    wanted = {"step-2/parent": "../step-1", "step-2/a/absolute": str(outside), "step-2/a/file": str(outside / "secret"),
              "step-2/above": "../../../..", "step-2/dangling": "nothing"}
    for name, target in wanted.items():
        (folder / name).symlink_to(target)
    (folder / "step-1" / "parent").symlink_to("../step-0")
    # A program may write a symbolic link as pointer.
    (folder / "latest").symlink_to("step-2")
    wait_until(lambda: sets_of(pool, folder)["step-2"]["complete"], "the set")
    pool.down("--drain")
    drained = pool.drain / "directory"
    os.lchown(drained / "step-2" / "parent", 65534, 65534)
    other = Pool(tmp_path)
    try:
        other.up(benefactors=2, memory="128M", drain=False)
        new = other.mount / "new"
        set_rules(other, new, *RULES)
        # Before: a link that leads elsewhere, and one in the place of a folder.
        (new / "step-2").mkdir()
        (new / "step-2" / "parent").symlink_to(outside)
        found = json.loads(other.stdchk("stage-in", "--json", "--to", new, drained).stdout)
        assert (found["files"], found["links"], found["bad"]) == (3, len(wanted) + 1, [])
        assert links_in(new) == {**wanted, "latest": "step-2"}
        assert os.lstat(new / "step-2" / "parent").st_uid == 65534
        assert not (new / "step-1").exists()
        # Again: nothing is to be done. A file in the place of a link stays.
        (new / "step-2" / "dangling").unlink()
        (new / "step-2" / "dangling").write_text("the user's")
        again = other.stdchk("stage-in", "--json", "--to", new, drained, check=False)
        assert again.returncode == 1
        bad = json.loads(again.stdout)["bad"]
        assert [one["path"] for one in bad] == [str(drained / "step-2" / "dangling")]
        assert (new / "step-2" / "dangling").read_text() == "the user's"
        (other.mount / "planted").mkdir()
        (other.mount / "planted" / "step-2").symlink_to(outside)
        refused = other.stdchk("stage-in", "--to", other.mount / "planted", drained, check=False)
        assert refused.returncode == 2
        assert "step-2/a is no folder" in refused.stderr or "step-2 is no folder" in refused.stderr
        # A set by a pattern: links beside it are of no set, and come with --all.
        other.stdchk("stage-in", "--all", "--to", other.mount / "planted", drained, check=False)
        assert sorted(os.listdir(outside)) == ["secret"]
        (other.mount / "all").mkdir()
        other.stdchk("stage-in", "--all", "--to", other.mount / "all", drained)
        assert links_in(other.mount / "all") == {**wanted, "latest": "step-2", "step-1/parent": "../step-0"}
        other.down()
    finally:
        other.clean()
    # The next pool on that drain directory shows the same links.
    pool.up(benefactors=2, memory="128M")
    assert links_in(pool.mount / "directory") == {**wanted, "latest": "step-2", "step-1/parent": "../step-0"}
    assert (outside / "secret").read_text() == "another user's"


def look_of(path):
    """Mode, owner, group and time of modification, of a link itself."""
    there = os.lstat(path)
    return there.st_mode, there.st_uid, there.st_gid, there.st_mtime_ns


def test_folders_and_links_come_back_with_their_attributes_also_folders_without_files(pool, tmp_path):
    pool.up(benefactors=2, memory="128M")
    folder = make_folder(pool, "directory", 1, 2)
    for step in ("step-1", "step-2"):
        for number, name in enumerate(("cache/deep", "cache")):
            made = folder / step / name
            made.mkdir(parents=True, exist_ok=True)
            made.chmod(0o2750 if number else 0o700)
            os.chown(made, 12345 + number, 23456)
            os.utime(made, ns=(10**18, 10**18 + number))
    link = folder / "step-2" / "link"
    link.symlink_to("nothing")
    os.chown(link, 12345, 23456, follow_symlinks=False)
    os.utime(link, ns=(10**18, 10**18 + 7), follow_symlinks=False)
    wait_until(lambda: sets_of(pool, folder)["step-2"]["complete"], "the set")
    wanted = {name: look_of(folder / "step-2" / name)
              for name in ("cache/deep", "cache", "a/0.bin", ".metadata", "link")}
    assert wanted["link"][1:] == (12345, 23456, 10**18 + 7)
    pool.down("--drain")
    drained = pool.drain / "directory"
    assert {name: look_of(drained / "step-2" / name) for name in wanted} == wanted
    other = Pool(tmp_path)
    try:
        other.up(benefactors=2, memory="128M", drain=False)
        new, chosen = other.mount / "new", other.mount / "chosen"
        set_rules(other, new, *RULES)
        (new / "step-2").mkdir(0o711)
        found = json.loads(other.stdchk("stage-in", "--json", "--to", new, drained).stdout)
        assert (found["files"], found["links"], found["folders"], found["bad"]) == (3, 1, 3, [])
        assert {name: look_of(new / "step-2" / name) for name in wanted} == wanted
        assert look_of(new / "step-2" / "a") == look_of(drained / "step-2" / "a")
        assert stat.S_IMODE((new / "step-2").stat().st_mode) == 0o711, "a folder that was there keeps its attributes"
        assert not (new / "step-1").exists()
        chosen.mkdir()
        other.stdchk("stage-in", "--set", "step-1", "--to", chosen, drained)
        assert sorted(os.listdir(chosen)) == ["step-1"]
        assert look_of(chosen / "step-1") == look_of(drained / "step-1")
        assert look_of(chosen / "step-1" / "cache" / "deep") == look_of(drained / "step-1" / "cache" / "deep")
        other.down()
    finally:
        other.clean()
    # The next pool on that drain directory shows the same.
    pool.up(benefactors=2, memory="128M")
    assert {name: look_of(pool.mount / "directory" / "step-2" / name) for name in wanted} == wanted


def test_an_unfinished_directory_is_not_loaded_by_default(pool, tmp_path):
    pool.up(benefactors=2, memory="128M")
    folder = pool.mount / "run"
    set_rules(pool, folder, *RULES)
    write_checkpoint(folder, 1)
    (folder / "step-2").mkdir()
    (folder / "step-2" / "__0_0.distcp").write_bytes(os.urandom(MIB))
    pool.down("--drain")
    assert (pool.drain / "run" / "step-2" / "__0_0.distcp").exists()
    other = Pool(tmp_path)
    try:
        other.up(benefactors=2, memory="128M", drain=False)
        other.stdchk("stage-in", pool.drain)
        assert sorted(os.listdir(other.mount / "run")) == ["latest", "step-1"]
        other.down()
    finally:
        other.clean()


def test_what_a_lost_pool_left_is_loaded_into_the_next_pool_and_restarted_from(pool):
    pool.up(benefactors=2, memory="128M")
    folder = make_folder(pool, "directory", 1, 2)
    (folder / "latest").write_text("step-2")
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    lose(pool)
    pool.up(benefactors=2, memory="128M")
    found = json.loads(pool.stdchk("stage-in", "--json", pool.drain / "directory").stdout)
    assert (found["files"], found["bad"]) == (4, [])
    assert found["bytes"] == found["checked_bytes"]
    local = pool.folder / "local"
    local.mkdir()
    assert restart(pool, folder, "--to", local) == ["step-2"] * 2
    assert is_same(local, pool.drain / "directory", [name.format(2) for name in SETS["directory"][0]])
    pool.stdchk("safe", folder / "step-2")


@pytest.mark.parametrize("kind", SETS)
def test_a_job_that_ends_well_leaves_what_the_policy_says(pool, kind):
    pool.up(benefactors=2, memory="128M")
    for end in ("remove", "last", "keep"):
        folder = make_folder(pool, kind, 1, 2, 3, settings=(f"end={end}",), name=end)
        (folder / "result").write_text("42\n")
        if kind == "directory":
            (folder / "latest").write_text("step-3\n")
            # The drain directory then has a link in step-1, which goes with the directory.
            assert pool.stdchk("policy", "set", folder / "step-1", "copies=1").stderr == ""
        wait_until(lambda at=folder: sets_of(pool, at)[SETS[kind][2].format(3)]["latest"], "the newest set")
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    count = len(SETS[kind][0])
    removed = 5 * count + (1 if kind == "directory" else 0)  # with the pointer, which would name a set that is gone
    done = pool.stdchk("down", "--success", pool.mount)
    assert f"{removed} images of the job that has ended well were removed" in done.stdout
    for end, left in (("remove", []), ("last", [3]), ("keep", [1, 2, 3])):
        there = pool.drain / end
        files = {str(path.relative_to(there)) for path in there.rglob("*")
                 if path.is_file() and not path.is_symlink() and not path.name.startswith(".stdchk")}
        wanted = {name.format(step) for name in SETS[kind][0] for step in left} | {"result"}
        if kind == "directory" and left:
            wanted.add("latest")
        assert files == wanted
        assert os.path.lexists(there / "latest") == bool(left)
        assert len([path for path in there.iterdir() if path.is_dir()]) == (len(left) if kind == "directory" else 0)
    assert run(BIN / "stdchk", "verify", pool.drain).returncode == 0


def test_a_directory_that_the_pointer_names_outlives_the_job(pool):
    """The job ended after step-3, before it wrote the pointer to step-3."""
    pool.up(benefactors=2, memory="128M")
    folder = make_folder(pool, "directory", 1, 2, 3, settings=("end=last",))
    (folder / "latest").write_text("step-2\n")
    pool.stdchk("set", "pin", folder / "step-1")
    pool.stdchk("down", "--success", pool.mount)
    there = pool.drain / "directory"
    assert {path.name for path in there.iterdir() if path.is_dir()} == {"step-1", "step-2", "step-3"}
    assert (there / "latest").read_text() == "step-2\n"
