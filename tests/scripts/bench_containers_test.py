"""Tests what bench/containers.py measures in which time, and what it predicts. No container runs here."""

import contextlib
import fnmatch
import pathlib
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import containers  # noqa: E402
from report import Failure, Report  # noqa: E402

PAPER = "10,30,60,120,240"


class Stub:
    """Stands in for a Bench: 20 rounds take 0.1 s, and each set 2 s more, of which 1.5 s are the pause. With `drift`, the
    machine becomes so much slower within a run."""

    def __init__(self, sizes, lost_sets=0, drift=0.0):
        self.sizes, self.lost_sets, self.drift = sizes, lost_sets, drift
        self.copies = []

    @contextlib.contextmanager
    def pool(self, *options):
        self.copies += [option for option in options if option.startswith("copies=")]
        yield None

    def gaps(self, pool, seconds, *options):
        count = round(seconds / 0.1)
        gaps = [0.1 * (1 + self.drift * at / count) for at in range(count)]
        sets = int(seconds / int(options[1])) - self.lost_sets if options else 0
        for number in range(sets):
            gaps[10 * number] += 2
        return gaps, [1500] * sets

    def pauses_s(self, pool):
        return [1.0, 1.5, 9.0]


def slow_down(sizes, **options):
    report = Report({}, "today.", containers.INTERVAL_RATIOS)
    stub = Stub(sizes, **options)
    containers.slow_down(report, stub)
    report.check_complete()
    return {row.name: row for row in report.rows}, stub


def test_each_interval_of_the_paper_has_a_row_with_its_prediction():
    rows, stub = slow_down(containers.sizes_of(False, True, PAPER))
    for every, sets, run in ((10, 3, 35), (30, 1, 35), (60, 1, 65), (120, 1, 126), (240, 1, 252)):
        row = rows[f"set every {every} s: slow-down"]
        assert row.figure.median == pytest.approx(1 + 2 * sets / run)
        assert row.ceiling.median == pytest.approx(1 + 1.5 * sets / run), "the median pause counts once for each set"
        assert row.ceiling_name == containers.PREDICTED
    assert stub.copies == ["copies=1"] * 5 + ["copies=2", "copies=3"]
    assert "3 copies, set every 5 s: slow-down" in rows


def test_a_machine_that_becomes_slower_does_not_count_as_a_cost_of_sets():
    rows, _ = slow_down(containers.sizes_of(False, True, "240"), drift=0.2)
    assert rows["set every 240 s: slow-down"].figure.median == pytest.approx(1 + 2 / 252, rel=0.001)


def test_a_run_lasts_whole_intervals_and_until_its_last_set_is_complete():
    sizes = containers.FULL
    assert [sizes.seconds(every) for every in (2, 7, 60, 240)] == [65, 68, 65, 252]


def test_a_run_without_a_complete_set_fails():
    with pytest.raises(Failure, match="no set was complete in 35 s, at an interval of 30 s"):
        slow_down(containers.sizes_of(False, True, "30"), lost_sets=1)


def test_the_small_sections_take_a_quarter_of_an_hour_at_most():
    small = containers.sizes_of(False, True, PAPER)
    assert small.minutes() <= 15 and small.minutes_of_intervals() <= 15
    assert containers.FULL.minutes() > small.minutes()


@pytest.mark.parametrize("text", ["0", "10,", "a minute", "10,-5"])
def test_intervals_that_are_no_seconds_are_refused(text):
    with pytest.raises(Failure, match="--intervals"):
        containers.sizes_of(False, False, text)


def test_two_to_sixteen_containers_are_required():
    names = [f"{number} ranks of 16 MiB: {what}" for number in containers.NUMBERS for what in ("pause", "restart")]
    assert {2, 16} <= set(containers.NUMBERS)
    assert all(any(fnmatch.fnmatch(name, pattern) for pattern in containers.FIGURES) for name in names)
