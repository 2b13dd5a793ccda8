"""Pools inside batch jobs that the user starts in the job script."""

import json
import os
import re
import shutil

import pytest
from clusters import CLUSTER, FIGURES, START, Cluster, Pbs, cluster, needed, needs_freezer, nothing_left, result_of
from processes import BIN, ROOT, leads_to, run, wait_until

MIB = 1 << 20
NOBODY = 65534
RANKS, STEPS, EVERY, WAIT_AT = 3, 40, 4, 24
HEAT = f"{BIN}/heat --cells 24 --steps {STEPS} --every {EVERY}"
pytestmark = needed
# Makes a folder with two sets; only the first is drained.
MAKE_UNDRAINED = """mkdir {mount}/kept; stdchk policy set {mount}/kept drain-every=2 images=1
    for step in 1 2; do head -c 100K /dev/urandom >{mount}/kept/app.N0.T$step; done;"""
LOST = "  lost        kept/app.*.T2: 1 of 1 images\n"


@pytest.fixture(autouse=True)
def fresh_output(cluster):
    (cluster.folder / "job.out").unlink(missing_ok=True)
    shutil.rmtree(cluster.pfs)
    cluster.pfs.mkdir()


@pytest.fixture(scope="module")
def undisturbed():
    """The result of a run of the program without a pool or a fault."""
    words = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", RANKS, *HEAT.split()]
    return result_of(run(*words).stdout)


def test_one_line_is_enough_and_says_where_the_mount_is(cluster):
    job = cluster.submit("--nodes=4", "--ntasks-per-node=1", script=f"""
        stdchk up --job --benefactor-nodes 4 --memory 64M || exit 1
        srun bash -c 'echo rank $SLURM_PROCID >/tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount/$SLURM_PROCID'
        cat /tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount/*
        stdchk down || exit 1
        eval "$(stdchk up --job --export --memory 64M --drain {cluster.pfs} --policy images=4,end=remove)" || exit 1
        srun bash -c 'echo again $SLURM_PROCID | tee $STDCHK_MOUNT/$SLURM_PROCID >$STDCHK_MOUNT/app.N$SLURM_PROCID.T1'
        cat $STDCHK_MOUNT/?
        stdchk drain --wait $STDCHK_MOUNT
        ls {cluster.pfs}/app.N?.T1 | wc -l
        stdchk down --success $STDCHK_MOUNT || exit 1
        unset STDCHK_MOUNT
        eval "$(stdchk up --job --export --memory 900T)" || echo refused
        """)
    cluster.wait(job)
    text = cluster.output()
    assert text.count(f"The pool is up at /tmp/stdchk-0-jobs/{job}.mount: 4 benefactors of 64.0 MiB, ") == 2
    assert all(f"{word} {rank}\n" in text for word in ("rank", "again") for rank in range(4))
    assert "refused" in text and "available" in text
    # The job has said that it ended well.
    assert "\n4\n4 images of the job that has ended well were removed." in text
    assert sorted(path.name for path in cluster.pfs.glob("[!.]*")) == ["0", "1", "2", "3"]
    assert not list(cluster.folder.glob("*.undrained*"))
    nothing_left(cluster, cluster.nodes)


def test_the_line_in_the_script_takes_the_pool_down_too(cluster):
    """The job has a single line of stdchk. The pool is drained at the script's end, and shortly before the time limit."""
    line = (f'eval "$(stdchk up --job --export --memory 64M --drain {cluster.pfs} --drain-rate 1M '
            '--policy images=3)" || exit 1')
    job = cluster.submit("--nodes=3", "--ntasks-per-node=1", script=f"""
        {line}
        srun bash -c 'head -c 3M /dev/urandom >$STDCHK_MOUNT/app.N$SLURM_PROCID.T1'
        """)
    cluster.wait(job)
    assert [(cluster.pfs / f"app.N{rank}.T1").stat().st_size for rank in range(3)] == [3 << 20] * 3
    assert os.readlink(cluster.pfs / "latest") == "app.*.T1"
    assert run(BIN / "stdchk", "verify", cluster.pfs).returncode == 0
    assert cluster.output().count(" is down.") == 1 and "Report card of the pool" in cluster.output()
    nothing_left(cluster, cluster.nodes)
    job = cluster.submit("--nodes=1", script=f"""
        {line}
        head -c 4M /dev/urandom >$STDCHK_MOUNT/late
        (echo waits; sleep 100) &
        wait $!
        """)
    wait_until(lambda: "waits" in cluster.output(), "the program", 60)
    cluster.call("run", "scancel", "--batch", "--signal=TERM", job)
    cluster.wait(job, ending="FAILED")
    assert (cluster.pfs / "late").stat().st_size == 4 << 20
    assert cluster.output().count(" is down.") == 2
    # A script that ends the pool by itself is left alone.
    job = cluster.submit("--nodes=1", script=f"""
        trap 'echo by itself; stdchk down $STDCHK_MOUNT' EXIT
        {line}
        """)
    cluster.wait(job)
    assert "by itself" in cluster.output() and cluster.output().count(" is down.") == 3
    nothing_left(cluster, cluster.nodes)


def test_the_next_job_has_other_nodes_and_another_number_of_ranks(cluster):
    """The next job reads drained files of the first, and writes sets with another number of images."""
    up = (f'eval "$(stdchk up --job --export --memory 64M --drain {cluster.pfs} '
          '--policy images=$SLURM_NTASKS)" || exit 1')
    job = cluster.submit("--nodes=2", "--nodelist=n1,n2", "--ntasks-per-node=2", script=f"""
        {up}
        mkdir $STDCHK_MOUNT/run
        for step in 1 2; do
          srun bash -c 'head -c 300K /dev/urandom >$STDCHK_MOUNT/run/app.N$SLURM_PROCID.T'$step || exit 1
        done
        # The third set stays incomplete.
        head -c 300K /dev/urandom >$STDCHK_MOUNT/run/app.N0.T3
        sha256sum $STDCHK_MOUNT/run/app.N?.T2 | sed 's|/.*/||' >{cluster.folder}/sums
        """)
    cluster.wait(job)
    assert os.readlink(cluster.pfs / "run" / "latest") == "app.*.T2"
    nothing_left(cluster, cluster.nodes)
    job = cluster.submit("--nodes=2", "--nodelist=n3,n4", "--ntasks-per-node=1", script=f"""
        {up}
        cd $STDCHK_MOUNT/run || exit 1
        echo "newest is $(readlink latest)"
        sha256sum --check {cluster.folder}/sums || exit 1
        stdchk restart --job --to /tmp . || exit 1
        srun bash -c 'cd /tmp; for image in app.N?.T2; do cmp $image $STDCHK_MOUNT/run/$image &&
            echo $image is on $(hostname); done; rm app.N?.T2'
        srun bash -c 'cat app.N$SLURM_PROCID.T2 app.N$((SLURM_PROCID + 2)).T2 >app.N$SLURM_PROCID.T4' || exit 1
        for i in $(seq 100); do [ "$(readlink latest)" = 'app.*.T4' ] && break; sleep 0.1; done
        echo "newest is $(readlink latest)"
        cd {cluster.folder}
        """)
    cluster.wait(job)
    text = cluster.output()
    assert text.count("newest is app.*.T2\n") == 1 and text.count("newest is app.*.T4\n") == 1
    assert [text.count(f"app.N{rank}.T2: OK") for rank in range(4)] == [1] * 4
    assert sorted(re.findall(r"(app\.N\d\.T2) is on n[34]", text)) == [f"app.N{rank}.T2" for rank in range(4)]
    run_folder = cluster.pfs / "run"
    assert os.readlink(run_folder / "latest") == "app.*.T4"
    for rank in (0, 1):
        parts = [(run_folder / f"app.N{rank + more}.T2").read_bytes() for more in (0, 2)]
        assert (run_folder / f"app.N{rank}.T4").read_bytes() == b"".join(parts)
    assert run(BIN / "stdchk", "verify", run_folder).returncode == 0
    nothing_left(cluster, cluster.nodes)


def test_a_plain_user_starts_a_pool_and_is_told_where_fuse_is_missing(cluster):
    """A user without root's rights mounts by fusermount3. The daemons serve metrics to Prometheus."""
    home = cluster.folder / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    (home / "figures").write_text(FIGURES)
    cluster.as_user = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]

    def job_of(nodes, script):
        job = cluster.submit("--nodes=2", f"--nodelist={nodes}", "--ntasks-per-node=1", "--output", home / "job.out",
                             script=f"cd {home}; id -u\nmount=/tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount\n{script}")
        cluster.wait(job)
        return (home / "job.out").read_text()

    cluster.on("n3", "sh", "-ec", "mknod -m 666 /run/absent c 10 250; mount --bind /run/absent /dev/fuse")
    try:
        text = job_of("n1,n4", """
            stdchk up --job --memory 64M --benefactor-nodes 1 --drain kept --metrics 0 || exit 2
            srun bash -c "echo from \\$SLURM_PROCID >$mount/\\$SLURM_PROCID; stat -c 'is of %u' $mount/\\$SLURM_PROCID"
            cat $mount/?
            srun bash figures $mount
            stdchk down --drain $mount || exit 3
            """)
        assert text.startswith(f"{NOBODY}\nThe pool is up at /tmp/stdchk-{NOBODY}-jobs/")
        assert ": 1 benefactor of 64.0 MiB, drained to " in text  # on the other node
        assert text.count(f"is of {NOBODY}\n") == 2
        assert "from 0\nfrom 1\n" in text
        assert sorted(re.findall("n. shows .*", text)) == [
            "n1 shows stdchk-manager", "n1 shows stdchk-mount", "n4 shows stdchk-benefactor", "n4 shows stdchk-mount"]
        assert [(home / "kept" / name).stat().st_uid for name in "01"] == [NOBODY] * 2
        text = job_of("n1,n3", """
            stdchk up --job --memory 64M || echo status $?
            eval "$(stdchk up --job --memory 64M --no-mount --export)" || exit 3
            stdchk status || exit 4
            stdchk down $STDCHK_MOUNT
            """)
        assert "n3: FUSE device: /dev/fuse is not there" in text and "--no-mount" in text and "status 2" in text
        nothing_left(cluster, cluster.nodes)
    finally:
        cluster.as_user = []
        cluster.on("n3", "sh", "-c", "umount /dev/fuse; rm /run/absent")
        shutil.rmtree(home)


def test_ranks_that_mpirun_starts_on_two_nodes_meet(cluster):
    """The rank on mpirun's node is in no step of the job. The other rank is in the step of mpirun's daemon."""
    job = cluster.submit("--nodes=2", "--nodelist=n3,n4", "--ntasks-per-node=1", script="""
        mount=/tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount
        stdchk up --job --memory 64M --policy images=2 || exit 1
        srun bash -c "head -c 1M /dev/urandom >$mount/app.N\\$SLURM_PROCID.T1"
        mpirun --allow-run-as-root -n 2 stdchk restart --timeout 20 $mount -- \\
            sh -c 'echo $(hostname) has $STDCHK_RESTART_SET in step ${SLURM_STEP_ID:-none}' || exit 1
        stdchk down $mount
        """)
    cluster.wait(job)
    found = re.findall(r"(n\d) has app\.\*\.T1 in step (\w+)", cluster.output())
    assert sorted(node for node, _ in found) == ["n3", "n4"] and len({step for _, step in found}) == 2
    nothing_left(cluster, ["n3", "n4"])


@pytest.mark.parametrize("proctrack", ["linuxproc", pytest.param("cgroup", marks=needs_freezer)])
def test_a_restart_is_timed_on_all_nodes(cluster, proctrack):
    own = Cluster(3, proctrack) if proctrack != "linuxproc" else None
    try:
        time_a_restart(own or cluster)
    finally:
        if own:
            own.end()


def time_a_restart(cluster):
    """A single node lends memory. Images reach the other nodes by the network, and this node by its loopback device."""
    folder = cluster.folder / "restart"
    folder.mkdir()
    # A stand-in for stdchk records what each node is told to do.
    (folder / "stdchk").write_text(f"""#!/bin/bash
        if [[ $1 == restart ]]; then
          [[ $FAILS ]] || echo "$@" >{folder}/told.$(hostname)
          if [[ $(hostname) == "$FAILS" ]]; then echo "stdchk: this node fails" >&2; exit 2; fi
        fi
        exec {BIN}/stdchk "$@"
        """)
    (folder / "stdchk").chmod(0o755)
    job = cluster.submit("--nodes=3", "--nodelist=n1,n2,n3", "--ntasks-per-node=1", script=f"""
        received() {{
          srun bash -c 'echo $(hostname) $(awk "/:/ {{n += \\$2}} END {{print n}}" /proc/net/dev)' >{folder}/$1
        }}
        export step mount=/tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount
        stdchk up --job --benefactor-nodes 1 --memory 128M --policy images=3 || exit 1
        for step in 1 2; do
          srun bash -c 'head -c $((4 << SLURM_PROCID))M /dev/urandom >$mount/app.N$SLURM_PROCID.T$step' || exit 1
        done
        received before
        STDCHK_BIN={folder} stdchk restart-test --job --json $mount >{folder}/timed || exit 1
        received after
        stdchk restart-test --job --set 'app.*.T1' $mount || exit 1
        FAILS=n2 STDCHK_BIN={folder} stdchk restart-test --job $mount
        echo status $?
        stdchk down $mount
        """)
    cluster.wait(job, seconds=150)
    text = cluster.output()
    timed = json.loads((folder / "timed").read_text())
    sizes = [4 * MIB, 8 * MIB, 16 * MIB]
    assert (timed["set"], timed["images"], timed["bytes"]) == ("app.*.T2", 3, sum(sizes))
    assert (timed["ranks"], timed["nodes"]) == (3, 3) and timed["slowest_node"] in ("n1", "n2", "n3")
    assert timed["seconds"] > 0 and timed["mb_per_s"] > 0
    before, after = (dict(line.split() for line in (folder / name).read_text().splitlines())
                     for name in ("before", "after"))
    for rank, node in enumerate(("n1", "n2", "n3")):
        assert f"--load {rank} --ranks 3 --set app.*.T2 " in (folder / f"told.{node}").read_text()
        assert sizes[rank] <= int(after[node]) - int(before[node]) < 1.5 * sizes[rank]
    assert re.search(r"^app\.\*\.T1: 3 images, 28.0 MiB for 3 ranks on 3 nodes in .*; the last was n[123]$", text,
                     re.MULTILINE), text
    # The launcher's message may precede the node's own message.
    assert re.search(r"^stdchk: n2: ", text, re.MULTILINE) and "stdchk: n1" not in text and "this node fails" in text
    # The others are not waited for.
    assert re.search(r"^stdchk: no rank goes on: [012] of 3 nodes have loaded", text, re.MULTILINE)
    assert "stdchk: app.*.T2 was not loaded\nstatus 2\n" in text
    nothing_left(cluster, ["n1", "n2", "n3"])


def script_of_the_project(cluster, name):
    """Copies a script of the project. The copy differs only in the memory that the nodes lend."""
    text = (ROOT / "scripts" / name).read_text()
    assert text.count("--memory 25G") == 1
    path = cluster.folder / "job.sh"
    path.write_text(text.replace("--memory 25G", "--memory 64M"))
    return path


def program_of_the_project(cluster, script):
    """Writes the program that scripts of the project start as ./heat."""
    path = cluster.folder / "heat"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def test_a_requeued_job_restarts_from_the_newest_drained_set(cluster, undisturbed):
    """The job is scripts/slurm/job, with a single line of stdchk."""
    program_of_the_project(cluster, f"""
        echo newest is $(readlink $STDCHK_MOUNT/heat/latest)
        if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then
          wait_step='--wait-step {WAIT_AT}'
          if [ $SLURM_PROCID = 0 ]; then {MAKE_UNDRAINED.format(mount='$STDCHK_MOUNT')} fi
        fi
        exec {HEAT} "$@" $wait_step""")
    drain = cluster.folder / "scratch" / "checkpoints"
    latest = drain / "heat" / "latest"
    cluster.as_user = ["env", f"SCRATCH={drain.parent}"]
    try:
        job = cluster.submit_file(script_of_the_project(cluster, "slurm/job"), "--nodes=3", "--ntasks-per-node=1")
    finally:
        cluster.as_user = []
    newest = f"heat.*.T{WAIT_AT - EVERY}"
    wait_until(lambda: leads_to(latest, newest), "five drained sets", 60)
    cluster.call("kill", "n2")
    wait_until(lambda: "restart step=" in cluster.output(), "the restart after the loss of n2", 90)
    cluster.wait(job)
    text = cluster.output()
    assert text.count(f"newest is {newest}") == RANKS
    assert f"restart step={WAIT_AT - EVERY}" in text
    assert result_of(text) == undisturbed
    assert os.readlink(latest) == f"heat.*.T{STEPS}"
    assert run(BIN / "stdchk", "verify", drain).returncode == 0
    assert f"Report card of the pool at /tmp/stdchk-0-jobs/{job}.mount, since " in text
    kept = (cluster.folder / f"stdchk-{job}.out").read_text()
    images = (STEPS - (WAIT_AT - EVERY)) // EVERY * RANKS
    assert f"  images      {images}\n" in text and f"  images      {images}\n" in kept
    # Exactly the undrained image is reported as lost.
    assert "The pool of an earlier run of this job was lost" in text
    assert text.count("  lost  ") == 1 and LOST in text and LOST in kept
    assert not list(cluster.folder.glob("*.undrained*"))
    # No process or file of the pool stays on any node.
    nothing_left(cluster, ["n1", "n3", "n4"])
    assert not list(cluster.folder.glob(".stdchk-job-*"))
    assert cluster.on("n2", "true", check=False).stderr == "slurm-cluster: n2 has ended\n"
    shutil.rmtree(drain.parent)


def test_what_went_with_the_node_of_the_manager_is_told_by_the_next_run():
    cluster = Cluster(3)
    try:
        job = cluster.submit("--nodes=2", "--requeue", script=f"""
            mount=/tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount
            stdchk up --job --memory 64M --drain {cluster.pfs} || exit 1
            [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || exec stdchk down --drain $mount
            {MAKE_UNDRAINED.format(mount='$mount')}
            stdchk drain --wait $mount/kept/app.N0.T1
            # The drain directory has an older version of the second image.
            cp {cluster.pfs}/kept/app.N0.T1 {cluster.pfs}/kept/app.N0.T2
            echo is drained; sleep 100
            """)
        kept = cluster.folder / f"stdchk-{job}.undrained"
        wait_until(lambda: "is drained" in cluster.output(), "the drain", 60)
        wait_until(lambda: kept.exists() and kept.read_text().splitlines()[2:] == ["1 1 kept/app.*.T2"],
                   "the record of what is not drained")
        cluster.call("kill", "n1")
        wait_until(lambda: "earlier run" in cluster.output(), "the next run", 180)
        cluster.wait(job)
        text = cluster.output()
        assert text.count("  lost  ") == 1 and LOST in text
        assert (cluster.pfs / "kept" / "app.N0.T1").exists()
        assert not list(cluster.folder.glob("*.undrained*"))
        nothing_left(cluster, ["n2", "n3"])
    finally:
        cluster.end()


def test_a_job_that_goes_on_after_a_loss_restarts_from_memory(undisturbed):
    cluster = Cluster(4)
    try:
        job = cluster.submit(
            "--nodes=4", "--ntasks-per-node=2", "--no-kill", script=f"""{START}
            stdchk up --job --mount /tmp/pool --benefactor-nodes 1 --memory 128M --encrypt \\
                --policy images=3 || exit 1
            srun --overlap -w n1,n2,n3 -N3 -n3 {HEAT} --directory /tmp/pool/heat --wait-step {WAIT_AT}
            echo newest is $(readlink /tmp/pool/heat/latest)
            start -w n1,n2 -N2 -n3 {HEAT} --directory /tmp/pool/heat || exit 1
            stdchk down /tmp/pool
            """)
        def latest():
            done = cluster.on("n1", "readlink", "/tmp/pool/heat/latest", check=False)
            return done.stdout.strip()
        wait_until(lambda: latest() == f"heat.*.T{WAIT_AT - EVERY}", "five sets", 60)
        cluster.call("kill", "n3")
        cluster.wait(job, seconds=150)
        text = cluster.output()
        assert f"newest is heat.*.T{WAIT_AT - EVERY}" in text
        assert f"restart step={WAIT_AT - EVERY}" in text
        assert result_of(text) == undisturbed
        assert "n3 could not be reached" in text
        nothing_left(cluster, ["n1", "n2", "n4"])
    finally:
        cluster.end()


def test_a_lost_benefactor_costs_nothing_that_has_its_copies(undisturbed):
    """The lost node lends memory and has a rank. The manager runs on another node."""
    cluster = Cluster(4)
    try:
        job = cluster.submit(
            "--nodes=4", "--ntasks-per-node=2", "--no-kill", script=f"""{START}
            stdchk up --job --mount /tmp/pool --benefactor-nodes 3 --memory 64M \\
                --policy images=3,copies=2,commit=redundant || exit 1
            srun --overlap -w n1,n2,n3 -N3 -n3 {HEAT} --directory /tmp/pool/heat --wait-step {WAIT_AT}
            echo newest is $(readlink /tmp/pool/heat/latest)
            start -w n1,n2,n4 -N3 -n3 {HEAT} --directory /tmp/pool/heat || exit 1
            for i in $(seq 100); do [ "$(readlink /tmp/pool/heat/latest)" = 'heat.*.T{STEPS}' ] && break; sleep 0.1; done
            echo newest is $(readlink /tmp/pool/heat/latest)
            stdchk status --json /tmp/pool >status
            stdchk check /tmp/pool || exit 1
            stdchk down /tmp/pool
            """)
        newest = f"heat.*.T{WAIT_AT - EVERY}"

        def asked(*words):
            return cluster.on("n1", *words, check=False).stdout

        wait_until(lambda: asked("readlink", "/tmp/pool/heat/latest").strip() == newest, "five sets", 60)
        status = json.loads(asked(BIN / "stdchk", "status", "--json", "/tmp/pool"))
        lending = {one["id"]: one["host"] for one in status["pool"]["benefactors"]}
        assert sorted(lending.values()) == ["n2", "n3", "n4"]
        images = [image for image in json.loads(asked(BIN / "stdchk", "ls", "-l", "--json", "/tmp/pool/heat"))
                  if re.search(r"\.T\d+$", image["path"])]
        assert len(images) == 3 * (WAIT_AT // EVERY - 1) and all(image["copies"] == 2 for image in images)
        holders = {lending[place["benefactor"]] for image in images for place in image["benefactors"]}
        assert "n3" in holders
        cluster.call("kill", "n3")
        cluster.wait(job, seconds=180)
        text = cluster.output()
        assert f"newest is {newest}\n" in text and f"newest is heat.*.T{STEPS}\n" in text
        assert f"restart step={WAIT_AT - EVERY}" in text
        assert result_of(text) == undisturbed
        assert json.loads((cluster.folder / "status").read_text())["pool"]["lost_chunks"] == 0
        assert "n3 could not be reached" in text
        nothing_left(cluster, ["n1", "n2", "n4"])
        assert not list(cluster.folder.glob(".stdchk-job-*"))
    finally:
        cluster.end()


def test_a_manager_that_died_is_no_good_end_and_what_went_with_it_is_told(cluster):
    """`down` reports the loss, and so does the end of a script that does not notice it and exits with 0."""
    lose = f"""
        {MAKE_UNDRAINED.format(mount='$mount')}
        stdchk drain --wait $mount/kept/app.N0.T1
        list=stdchk-$SLURM_JOB_ID.undrained
        until grep -sq 'app[.][*][.]T2' $list && ! grep -q 'app[.][*][.]T1' $list; do sleep 0.1; done
        pkill -KILL -x stdchk-manager
        """
    up = f"--job --memory 64M --drain {cluster.pfs}"
    ends = {}
    for how, ending in (("down", "COMPLETED"), ("end", "FAILED")):
        script = {"down": f"stdchk up {up} || exit 1; mount=/tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount\n{lose}\nstdchk down",
                  "end": f'eval "$(stdchk up --export {up})" || exit 1; mount=$STDCHK_MOUNT\n{lose}\nexit 0'}[how]
        job = cluster.submit("--nodes=2", "--nodelist=n3,n4", script=script)
        cluster.wait(job, ending=ending)
        nothing_left(cluster, ["n3", "n4"])
        ends[how] = (cluster.folder / f"stdchk-{job}.out").read_text()
        assert ends[how].count("  lost  ") == 1 and LOST in ends[how]
        shutil.rmtree(cluster.pfs / "kept")
    assert "the pool stays up: " in cluster.output()
    # The caller of `down` sees the losses, and later callers do not. Slurm may requeue a job that has just ended.
    assert cluster.output().count(LOST) == 1
    assert [path.name for path in cluster.folder.glob("*.undrained*")] == [f"stdchk-{job}.undrained"]
    (cluster.folder / f"stdchk-{job}.undrained").unlink()


def test_a_cancelled_job_leaves_nothing(cluster):
    for rank in (0, 1):  # drained after the earlier run had noted what was not
        (cluster.pfs / f"app.N{rank}.T1").write_bytes(b"image")
    job = cluster.submit("--nodes=2", script=f"""
        printf '%s\n' '# comment' '2026-01-02 03:04:05 +0100' '1 2 app.*.T1' '2 2 app.*.T2' >stdchk-$SLURM_JOB_ID.undrained
        stdchk up --job --mount /tmp/pool --memory 64M --drain {cluster.pfs} || exit 1
        echo is up; sleep 100
        """)
    wait_until(lambda: "is up" in cluster.output(), "the pool", 60)
    assert "not drained at 2026-01-02 03:04:05 +0100, so they are lost:\n  lost        app.*.T2: 2 of 2 images\n" in cluster.output()
    assert "app.*.T1" not in cluster.output()
    cluster.call("run", "scancel", job)
    wait_until(lambda: cluster.state(job) == "CANCELLED", "the end", 30)
    nothing_left(cluster, [node for node in cluster.nodes if node != "n2"])


def test_a_part_that_ended_early_is_told_with_the_end_of_the_pool(cluster):
    job = cluster.submit("--nodes=2", "--nodelist=n3,n4", script="""
        stdchk up --job --mount /tmp/pool --memory 64M || exit 1
        srun --overlap --nodes=1 --ntasks=1 --nodelist=n4 \\
            bash -c 'kill $(pgrep -f "stdchk up .*--job-id"); while [ -e /tmp/pool ]; do sleep 0.1; done'
        stdchk down /tmp/pool
        """)
    cluster.wait(job)
    assert "while it ran: n4: a signal asked the part of the pool on this node to end\n" in cluster.output()
    nothing_left(cluster, ["n3", "n4"])


def test_a_pool_that_does_not_start_says_why_and_leaves_nothing(cluster):
    job = cluster.submit("--nodes=2", script="""
        stdchk up --job --mount /tmp/pool --memory 900T
        echo status $?
        stdchk up --job --mount /tmp/pool --benefactor-nodes 3
        echo status $?
        """)
    wait_until(lambda: cluster.output().count("status 2") == 2, "the refusals", 60)
    assert "available" in cluster.output() and "more than the 2 nodes" in cluster.output()
    cluster.wait(job)
    nothing_left(cluster, [node for node in cluster.nodes if node != "n2"])


def test_a_node_without_fuse_is_named(cluster):
    cluster.on("n3", "sh", "-ec", "mknod /run/absent c 10 250; mount --bind /run/absent /dev/fuse")
    try:
        job = cluster.submit("--nodes=2", "--nodelist=n1,n3", script="""
            stdchk up --job --memory 64M
            echo status $?
            eval "$(stdchk up --job --memory 64M --no-mount --export)" || exit 1
            test -s "$STDCHK_SECRET_FILE" || exit 1
            stdchk status || exit 1
            stdchk down $STDCHK_MOUNT
            """)
        cluster.wait(job)
        text = cluster.output()
        assert "status 2" in text
        assert "n3: FUSE device: /dev/fuse is not there" in text and "--no-mount" in text
        assert "n1: FUSE" not in text
        nothing_left(cluster, ["n1", "n3"])
    finally:
        cluster.on("n3", "sh", "-c", "umount /dev/fuse; rm /run/absent")


def test_a_pbs_job_brings_its_pool_up_and_down(cluster):
    nodes = [node for node in cluster.nodes if node != "n2"]
    pbs = Pbs(cluster, nodes)
    try:
        done = pbs.run(f"""
            stdchk up --job --mount /tmp/pool --memory 64M --benefactor-nodes 2 \\
                --drain {cluster.pfs} --policy images=2 || exit 1
            stdchk status --json /tmp/pool
            head -c 3M /dev/urandom >/tmp/pool/app.N0.T1
            pbsdsh -n 2 -- cp /tmp/pool/app.N0.T1 /tmp/pool/app.N1.T1
            cmp /tmp/pool/app.N0.T1 /tmp/pool/app.N1.T1 || exit 1
            stdchk drain --wait /tmp/pool
            stdchk restart --job --to /tmp /tmp/pool || exit 1
            cmp /tmp/app.N0.T1 /tmp/pool/app.N0.T1 || exit 1
            [[ -z $(pbsdsh -n 2 -- cmp /tmp/app.N1.T1 /tmp/pool/app.N1.T1) ]] || exit 1
            stdchk restart --hosts "$(sed -n '1p;$p' "$PBS_NODEFILE" | paste -sd,)" --to /tmp /tmp/pool || exit 1
            [[ -z $(pbsdsh -n 4 -- cmp /tmp/app.N1.T1 /tmp/pool/app.N1.T1) ]] || exit 1
            mkdir /tmp/here
            stdchk restart --job --to /tmp/here /tmp/pool && exit 1
            rm -r /tmp/here; for place in 0 2 4; do pbsdsh -n $place -- sh -c 'rm /tmp/app.N*'; done
            """)
        assert done.returncode == 0, done.stdout + done.stderr
        # Two nodes lack the folder. The first failure ends the other nodes.
        told = "pbsdsh: task 0x00000000 exit status 2; the reason is in the job's output"
        assert any(f"{node}: {told}" in done.stderr for node in nodes[1:])
        assert "no rank goes on" in done.stderr
        # The script has ended without `down`: the epilogue finds the rest, on each node.
        for node in reversed(nodes):
            assert cluster.left_behind(node)
            cluster.on(node, "env", "-i", f"STDCHK_BIN={BIN}", ROOT / "scripts" / "pbs" / "epilogue",
                       "7.server", "root", "root")
        assert done.stdout.count('"state": "alive"') == 2
        assert "  images      2\n  written     6.0 MiB\n" in (pbs.folder / "stdchk-7.server.out").read_text()
        assert (cluster.pfs / "app.N0.T1").stat().st_size == 3 << 20
        nothing_left(cluster, nodes)
    finally:
        pbs.end()
        shutil.rmtree(pbs.folder)


def test_the_script_for_pbs_drains_at_its_end(cluster):
    nodes = [node for node in cluster.nodes if node != "n2"]
    program_of_the_project(cluster, """
        mkdir -p $2 && head -c 1M /dev/urandom >$2/app.N$OMPI_COMM_WORLD_RANK.T1""")
    pbs = Pbs(cluster, nodes)
    drain = cluster.folder / "checkpoints"
    try:
        done = pbs.run(f"PBS_O_WORKDIR={cluster.folder} bash {script_of_the_project(cluster, 'pbs/job')}")
        assert done.returncode == 0, done.stdout + done.stderr
        card = cluster.folder / "stdchk-7.server.out"
        assert "  drained     6 images, 6.0 MiB\n" in card.read_text()
        card.unlink()
        assert [(drain / "heat" / f"app.N{rank}.T1").stat().st_size for rank in range(6)] == [MIB] * 6
        assert os.readlink(drain / "heat" / "latest") == "app.*.T1"
        nothing_left(cluster, nodes)
    finally:
        pbs.end()
        shutil.rmtree(pbs.folder)
        shutil.rmtree(drain, ignore_errors=True)


def test_where_pbs_has_no_launcher_the_nodes_are_reached_by_the_remote_shell(cluster):
    nodes = [node for node in cluster.nodes if node != "n2"]
    pbs = Pbs(cluster, nodes, pbsdsh="tm/pbsdsh")
    try:
        done = pbs.run("""
            mount=/tmp/stdchk-$UID-jobs/$PBS_JOBID.mount
            stdchk up --job --rsh "$PBS_STAND_IN/rsh" --memory 64M --policy "images=3" || exit 1
            stdchk status --json $mount
            for rank in 0 1 2; do head -c 1M /dev/urandom >$mount/app.N$rank.T1; done
            stdchk restart --job --to /tmp $mount || exit 1
            cmp /tmp/app.N0.T1 $mount/app.N0.T1 && rm /tmp/app.N0.T1 || exit 1
            stdchk restart --job --to /tmp/absent $mount && exit 1
            stdchk down $mount || exit 1
            """)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count('"state": "alive"') == 3
        assert any(f"{node}: exit status 1" in done.stderr for node in nodes)
        for node in nodes[1:]:
            cluster.on(node, "sh", "-c", "test -s /tmp/app.N*.T1 && rm /tmp/app.N*.T1")
        nothing_left(cluster, nodes)
    finally:
        pbs.end()
        shutil.rmtree(pbs.folder)


def shell_to_nodes(cluster):
    """Writes a program that stands in for ssh from the head to a node."""
    shell = cluster.folder / "shell"
    shell.write_text(f"#!/bin/bash\n[[ -e $STDCHK_CLUSTER/nodes/$1 ]] || exit 255\n"
                     f"exec {CLUSTER} _inside $1 ${{@:2}}\n")
    shell.chmod(0o755)
    return shell


def test_a_pool_that_outlives_a_job_restarts_the_next_one_from_memory(cluster):
    """The pool has no drain directory. The next job has another number of ranks."""
    hosts = cluster.folder / "hosts"
    hosts.write_text("n1\nn3\nn4\n")
    cluster.call("run", BIN / "stdchk", "up", "--hosts", hosts, "--mount-on-hosts", "--rsh", shell_to_nodes(cluster),
                 "--listen", "head", "--benefactors", "1", "--memory", "64M", "--policy", "images=3", "--mount", "/tmp/pool",
                 "--state", cluster.folder / "state")
    job = cluster.submit("--nodes=3", "--nodelist=n1,n3,n4", "--ntasks-per-node=1", script="""
        mkdir /tmp/pool/run
        srun bash -c 'head -c 1M /dev/urandom >/tmp/pool/run/app.N$SLURM_PROCID.T1' || exit 1
        sha256sum /tmp/pool/run/app.N?.T1 | sed 's|/.*/||' >sums
        """)
    cluster.wait(job)
    job = cluster.submit("--nodes=2", "--nodelist=n3,n4", "--ntasks-per-node=1", script="""
        export STDCHK_POOL=$PWD/state
        srun stdchk restart --to /tmp /tmp/pool/run -- \\
            bash -c 'cd /tmp && echo rank $SLURM_PROCID has "$STDCHK_RESTART_SET" && cat app.N?.T1 | wc -c' || exit 1
        srun bash -c 'cd /tmp && sha256sum app.N?.T1; rm app.N?.T1' | sort -k 2 | diff - sums && echo equal
        """)
    cluster.wait(job)
    text = cluster.output()
    assert sorted(re.findall(r"rank \d has app\.\*\.T1", text)) == [f"rank {rank} has app.*.T1" for rank in (0, 1)]
    assert "3 images loaded by 2 ranks" in text and "equal\n" in text
    assert sorted(re.findall(r"^\d+$", text, re.MULTILINE)) == [str(MIB), str(2 * MIB)]
    cluster.call("run", BIN / "stdchk", "down", "/tmp/pool")
    nothing_left(cluster, ["n1", "n3", "n4"])


def test_a_pool_of_rented_hosts_comes_from_a_plain_list(cluster):
    """The head stands for the rented machine of the user's login. The nodes are the other rented machines."""
    shell = shell_to_nodes(cluster)
    hosts = cluster.folder / "hosts"
    up = ["run", "env", f"STDCHK_RSH={shell}", "STDCHK_LISTEN=head", ROOT / "scripts" / "cloud" / "up",
          hosts, "/tmp/pool", "--memory", "64M"]
    hosts.write_text("n1\nabsent\n")
    done = cluster.call(*up, check=False)
    assert done.returncode == 1 and ": absent" in done.stderr
    hosts.write_text("# all lend, all have the mount\nn1\n\nn4 memory=96M\n")
    cluster.call(*up)
    cluster.on("n1", "sh", "-c", "echo from n1 >/tmp/pool/file")
    assert cluster.on("n4", "cat", "/tmp/pool/file").stdout == "from n1\n"
    assert cluster.call("run", "cat", "/tmp/pool/file").stdout == "from n1\n"
    status = json.loads(cluster.call("run", BIN / "stdchk", "status", "--json", "/tmp/pool").stdout)
    lending = {one["host"]: one for one in status["pool"]["benefactors"]}
    assert sorted(lending) == ["n1", "n4"] and len(status["pool"]["benefactors"]) == 2
    assert all(one["state"] == "alive" for one in lending.values())
    cluster.call("run", BIN / "stdchk", "down", "/tmp/pool")
    nothing_left(cluster, ["n1", "n4"])


def test_outside_of_a_job_it_says_where_it_belongs():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PBS_"))}
    done = run(BIN / "stdchk", "up", "--job", "--mount", "/tmp/nowhere", check=False, env=clean)
    assert done.returncode == 2 and "batch script" in done.stderr and "--hosts" in done.stderr
