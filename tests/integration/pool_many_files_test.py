"""Many files at once."""

import os
import time

from processes import PATIENCE

LISTED_FILES = 100_000


def test_a_folder_of_100000_files_is_listed_within_a_second(pool):
    """A new pool shows what the drain directory has: the quickest way to so many files."""
    folder = pool.drain / "many"
    folder.mkdir(parents=True)
    for i in range(LISTED_FILES):
        (folder / f"file{i:06}").touch()
    pool.up(benefactors=1, memory="256M")
    times = []
    for _ in range(3):
        begun = time.monotonic()
        assert len(os.listdir(pool.mount / "many")) == LISTED_FILES
        times.append(time.monotonic() - begun)
    assert min(times) < PATIENCE, times
