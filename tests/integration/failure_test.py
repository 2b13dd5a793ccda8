"""Regression tests of faults seen in real pools: odd set-ups, odd files, stopped processes."""

MIB = 1 << 20


def test_down_does_not_call_its_own_unmounting_a_crash(pool):
    for _ in range(3):
        pool.up(benefactors=1, memory="64M", drain=False)
        done = pool.down()
        assert done.stdout == f"The pool at {pool.mount} is down.\n"
        assert done.stderr == ""
    assert not list((pool.runtime / "stdchk").glob("crashed-*"))


def test_a_drain_directory_in_the_mount_is_refused_and_nothing_is_made(pool):
    words = ("up", "--mount", pool.mount, "--memory", "64M", "--drain")
    for drain in (pool.mount, pool.mount / "below", pool.folder):
        done = pool.stdchk(*words, drain, check=False)
        assert done.returncode == 2
        assert "must not lie in each other" in done.stderr
    assert not pool.mount.exists()


def test_files_without_bytes_are_drained_and_found_by_the_next_pool(pool):
    pool.up(benefactors=2, memory="64M")
    (pool.mount / "folder").mkdir()
    (pool.mount / "folder" / "empty").touch()
    with open(pool.mount / "hole", "wb") as file:
        file.truncate(3 * MIB + 1)
    with open(pool.mount / "sparse", "wb") as file:
        file.write(b"begin")
        file.seek(16 * MIB)
        file.write(b"end")
    pool.down("--drain")
    sparse = pool.drain / "sparse"
    assert sparse.read_bytes() == b"begin" + bytes(16 * MIB - 5) + b"end"
    assert sparse.stat().st_blocks * 512 < MIB  # holes stay holes
    assert (pool.drain / "folder" / "empty").stat().st_size == 0
    assert (pool.drain / "hole").read_bytes() == bytes(3 * MIB + 1)
    pool.up(benefactors=2, memory="64M")
    assert (pool.mount / "folder" / "empty").read_bytes() == b""
    assert (pool.mount / "hole").read_bytes() == bytes(3 * MIB + 1)


def test_a_drain_directory_that_returns_is_used_by_the_next_wait(pool):
    pool.up(benefactors=1, memory="64M")
    away = pool.folder / "away"
    pool.drain.rename(away)
    (pool.mount / "file").write_bytes(b"x" * MIB)
    done = pool.stdchk("drain", "--wait", pool.mount, check=False)
    assert done.returncode == 1
    assert "could not be drained" in done.stderr
    away.rename(pool.drain)
    pool.stdchk("drain", "--wait", pool.mount)
    assert (pool.drain / "file").read_bytes() == b"x" * MIB
