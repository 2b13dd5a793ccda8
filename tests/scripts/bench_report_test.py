"""Tests when bench/run publishes a section, and what its page says."""

import fnmatch
import importlib.machinery
import importlib.util
import inspect
import pathlib
import re
import sys
import time
import types

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
from report import Aim, Difference, Failure, Headline, Report, Series, index, table  # noqa: E402

loader = importlib.machinery.SourceFileLoader("bench_run", str(BENCH / "run"))
bench_run = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
sys.modules["bench_run"] = bench_run  # dataclasses looks the module up there
sys.dont_write_bytecode = True
loader.exec_module(bench_run)

MINE, CEILING = [3.0, 4.0, 5.0], [4.0, 4.0, 5.0]


def series(values, unit="GB/s"):
    return Series(values, unit, time.time())


def report(**required):
    return Report(required.pop("aims", {}), "today.", **required)


def test_a_row_that_must_come_and_does_not_fails_the_section():
    for required in ({"aims": {"write": Aim(least=0.8)}}, {"figures": ["write"]}, {"ratios": ["write"]}):
        one = report(**required)
        one.add("read", series(MINE), "raw loop", series(CEILING))
        with pytest.raises(Failure, match="not measured: write"):
            one.check_complete()
        one.add("write", series(MINE), "raw loop", series(CEILING))
        one.check_complete()


def test_a_ratio_that_must_come_is_not_made_up_for_by_a_figure():
    one = report(ratios=["shm: write*"])
    one.add("shm: write of 1 MiB", series(MINE))
    with pytest.raises(Failure, match="its ratio"):
        one.check_complete()
    one.add("shm: write of 4 KiB", series(MINE), "raw loop", series(CEILING))
    one.check_complete()


def test_a_section_of_which_nothing_is_required_fails():
    one = report()
    one.add("write", series(MINE), "raw loop", series(CEILING))
    with pytest.raises(Failure, match="no row is required"):
        one.check_complete()


def test_only_a_promise_that_is_missed_fails_the_run():
    one = report(aims={"lost": Aim(most=0, must=True), "found": Aim(most=0)})
    for name in ("lost", "found"):
        one.add(name, series([0.0, 1.0], "bytes"))
    assert [(row.missed, row.failed) for row in one.rows] == [(True, True), (True, False)]
    assert one.markdown().count("**missed**") == 2


def test_an_aim_without_its_ceiling_fails():
    with pytest.raises(Failure, match="no ceiling"):
        report(aims={"write": Aim(least=0.8)}).add("write", series(MINE))
    report(aims={"calls": Aim(most=4)}).add("calls", series(MINE))


@pytest.mark.parametrize("older", ["figure", "ceiling"])
def test_a_measurement_that_is_older_than_the_run_fails(older):
    before = Series(MINE, "GB/s", time.time() - 60)
    one = report(figures=["write"])
    now = series(MINE)
    with pytest.raises(Failure, match="older than this run"):
        one.add("write", before if older == "figure" else now, "raw loop", before if older == "ceiling" else now)
    assert one.rows == []


def test_a_ratio_is_as_old_as_the_older_of_the_two():
    assert Series(MINE, "", 5.0).over(Series(CEILING, "", 3.0)).taken == 3.0
    assert Series(MINE, "", 2.0).over(Series(CEILING, "", 3.0)).taken == 2.0


def test_a_figure_and_a_ceiling_of_other_rounds_fail():
    with pytest.raises(Failure, match="same rounds"):
        report().add("write", series(MINE), "raw loop", series(CEILING[:2]))
    with pytest.raises(Failure, match="no values"):
        series([])


def test_an_aim_is_held_against_the_median_and_a_limit_against_the_maximum():
    assert Aim(least=4.0).met(series(MINE)) and not Aim(least=4.1).met(series(MINE))
    assert Aim(most=5.0).met(series(MINE)) and not Aim(most=4.9).met(series(MINE))


def test_the_page_gives_minimum_median_and_maximum_and_says_what_was_missed():
    one = report(aims={"write": Aim(least=0.9), "read": Aim(least=1.1)})
    one.section("Speed", "How fast\n  it is.")
    one.add("write", series(MINE), "raw loop", series(CEILING))
    one.add("read", series(MINE), "raw loop", series(CEILING))
    assert table(one.rows)[2] == (
        "| write | 3 / 4 / 5 GB/s | raw loop: 4 / 4 / 5 GB/s | 0.75 / 1 / 1 | at least 0.9, met |")
    page = index({"other": "# Other\n\n*then, commit 1, x.* kept\n", "speed": one.markdown()}, [], "Head.", {})
    assert "1 of 2 aims are met. Missed aims:\n\n- [read](results/speed.md)\n" in page
    assert page.index("(results/other.md)") < page.index("[Speed](results/speed.md)")


def test_the_first_page_shows_the_medians_of_its_headlines():
    one = report(aims={"write": Aim(least=0.9)})
    one.section("Speed", "How fast it is.")
    one.add("write", series(MINE), "raw loop", series(CEILING))
    page = index({"speed": one.markdown()}, [Headline("speed", "write", "writing"), Headline("speed", "gone", "no row")],
                 "Head.", {})
    assert "| [writing](results/speed.md) | 4 GB/s | raw loop: 4 GB/s | 1 | at least 0.9, met |" in page
    assert "no row" not in page


def test_a_difference_that_noise_hides_is_not_a_time():
    assert Difference([0.5, 0.75, 1.0], "s", time.time()).text() == "0.5 / 0.75 / 1 s"
    assert Difference([-0.161, 0.741, 0.918], "s", time.time()).text() == "not seen beside the noise; at most 0.918 s"
    one = report(figures=["more"])
    one.add_difference("more", series([-1.0, 2.0], "s"))
    assert "| more | not seen beside the noise; at most 2 s |" in one.markdown()


def test_an_introduction_keeps_its_paragraphs_and_its_list():
    one = report(aims={})
    one.section("Speed", """
        How fast
        it is.

        The ceiling is a loop.
        - *write*: the rate
          of writing.
        - *read*: the rate of reading.
        """)
    assert one.text == ("How fast it is.\n\nThe ceiling is a loop.\n- *write*: the rate of writing.\n"
                        "- *read*: the rate of reading.")


def test_a_section_that_could_not_run_says_so_and_has_no_figures():
    one = report(aims={"write": Aim(least=0.8)})
    one.section("Speed", "How fast it is.")
    one.add("write", series(MINE), "raw loop", series(CEILING))
    one.not_run("there is no device")
    one.check_complete()
    assert one.markdown() == "# Speed\n\n*today.*\n\nNOT RUN: there is no device\n"
    assert "| not run |" in index({"speed": one.markdown()}, [], "Head.", {})


def test_every_section_has_rows_that_must_come():
    known = [set(rows) for rows in (bench_run.AIMS, bench_run.RATIOS, bench_run.FIGURES)]
    assert set.union(*known) == set(bench_run.SECTIONS)
    assert all(callable(getattr(bench_run.Bench, section)) for section in bench_run.SECTIONS)


@pytest.fixture
def programs(tmp_path):
    """A folder with an io-bench that writes the file named by $SAMPLE."""
    (tmp_path / "io-bench").write_text('#!/bin/sh\nexec head -c 4M "$SAMPLE"\n')
    (tmp_path / "io-bench").chmod(0o755)
    return tmp_path


def run_main(monkeypatch, programs, measured, sample="/dev/urandom"):
    """Runs bench/run with one section whose measurement is `measured`. Returns its status and its page."""
    page = programs / "results" / "start_up.md"
    page.parent.mkdir()
    page.write_text("# Starting a pool\n\nof yesterday\n")
    monkeypatch.setenv("SAMPLE", sample)
    monkeypatch.setattr(bench_run, "busy_share", lambda seconds: 0.0)
    monkeypatch.setattr(bench_run, "commit", lambda: "abc1234")
    monkeypatch.setattr(bench_run.Bench, "start_up", measured)
    monkeypatch.setattr(sys, "argv", ["run", "--bin", str(programs), "--only", "start_up", "--out", str(programs)])
    return bench_run.main(), page.read_text()


def measure_both(bench):
    bench.report.section("Starting a pool", "How long it takes.")
    for benefactors in (4, 64):
        bench.report.add(f"{benefactors} benefactors of 32 MiB", series([1.0, 2.0, 3.0], "s"))


def test_a_section_that_is_complete_is_published(monkeypatch, programs):
    status, page = run_main(monkeypatch, programs, measure_both)
    assert status == 0
    assert "| 64 benefactors of 32 MiB | 1 / 2 / 3 s |" in page and "yesterday" not in page
    assert "[Starting a pool](results/start_up.md)" in (programs / "RESULTS.md").read_text()


def test_a_section_that_fails_leaves_its_page_as_it_was(monkeypatch, programs, capsys):
    def measure_one(bench):
        bench.report.section("Starting a pool", "How long it takes.")
        bench.report.add("4 benefactors of 32 MiB", series([1.0], "s"))
    status, page = run_main(monkeypatch, programs, measure_one)
    assert status == 1 and page == "# Starting a pool\n\nof yesterday\n"
    assert "not measured: 64 benefactors of *" in capsys.readouterr().err


def test_nothing_is_measured_with_data_that_can_be_compressed(monkeypatch, programs, capsys):
    status, page = run_main(monkeypatch, programs, measure_both, sample="/dev/zero")
    assert status == 1 and "of yesterday" in page
    assert "can be compressed" in capsys.readouterr().err


def test_nothing_is_published_of_what_is_not_committed(monkeypatch):
    monkeypatch.setattr(bench_run, "busy_share", lambda seconds: 0.0)
    monkeypatch.setattr(bench_run, "commit", lambda: "abc1234-dirty")
    with pytest.raises(Failure, match="not committed"):
        bench_run.measure(None, "client", publish=True)


def test_nothing_is_published_of_a_busy_machine(monkeypatch):
    monkeypatch.setattr(bench_run, "busy_share", lambda seconds: 0.5)
    bench = types.SimpleNamespace(measure=lambda section, taken: "measured")
    with pytest.raises(Failure, match="busy"):
        bench_run.measure(bench, "client", publish=True)
    assert bench_run.measure(bench, "client", publish=False) == "measured"


# ---- what is published -----------------------------------------------------------------------------------------------

NOT_PUBLISHED = {"cast", "fork", "pager", "peers", "preload", "readers", "scale", "torch"}  # sections of bench/run that the page does not have


def published():
    """The tables of bench/results as {section: {row: {column: cell}}}. Without a run, a section has no rows."""
    pages = {}
    for path in sorted((BENCH / "results").glob("*.md")):
        text = path.read_text()
        lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        pages[path.stem] = {row[0]: dict(zip(cells[0], row)) for row in cells[1:]}
        if "NOT RUN" in text:
            pages[path.stem] = None
    return pages


def title_of(section):
    return re.search(r'\.section\("([^"]+)"', inspect.getsource(getattr(bench_run.Bench, section))).group(1)


@pytest.mark.parametrize("section", [each for each in bench_run.SECTIONS if each not in NOT_PUBLISHED])
def test_the_page_of_results_has_what_the_bench_requires_today(section):
    pages = published()
    assert section in pages, f"measure it: bench/run --only {section}"
    assert (BENCH / "results" / f"{section}.md").read_text().startswith(f"# {title_of(section)}\n")
    rows = pages[section]
    if rows is None:
        return
    aims = bench_run.AIMS.get(section, {})
    compared = [name for name, cells in rows.items() if cells.get("ratio")]
    absent = [name for name, aim in aims.items()
              if not rows.get(name, {}).get("aim", "").startswith(f"{aim.text()}, ")]
    absent += [name for name in bench_run.FIGURES.get(section, ()) if not fnmatch.filter(rows, name)]
    absent += [name for name in bench_run.RATIOS.get(section, ()) if not fnmatch.filter(compared, name)]
    assert not absent, f"measure it again: bench/run --only {section}"


def test_there_is_no_page_of_a_section_that_the_bench_has_not():
    assert set(published()) <= set(bench_run.SECTIONS)


def test_the_first_page_is_what_the_sections_say():
    page = (BENCH / "RESULTS.md").read_text()
    pages = {name: BENCH / "results" / f"{name}.md" for name in bench_run.SECTIONS}
    pages = {name: path.read_text() for name, path in pages.items() if path.exists()}
    made = index(pages, bench_run.HEADLINES, page.split("\n")[2], {})
    tables = made.split("\n\nHow to read")[0].rstrip()
    assert page.startswith(tables + "\n\n- "), "run bench/run --only SECTION"
    assert page.count("(results/") >= len(pages) + len(bench_run.HEADLINES)


GIGA = {"GB/s": 1.0, "MB/s": 0.001}


def rows_of_the_readme():
    """The rows of README.md that link a page of results: (link text, page, figure, cell of what stands beside it)."""
    text = (BENCH.parent / "README.md").read_text()
    return re.findall(r"^\| \[([^\]]+)\]\(bench/results/(\w+)\.md\)[^|]* \| ([^|]+) \| ([^|]+) \|$", text, re.M)


def rounds_to(stated, measured):
    """True if the first figure of `stated`, as "5.2 GB/s", is the figure of `measured`, rounded to the stated digits."""
    (short, unit), (long, other) = (re.search(r"([\d.]+) ([GM]B/s)", each).groups() for each in (stated, measured))
    half = 0.5 * 10 ** -len(short.partition(".")[2])
    return abs(float(short) * GIGA[unit] - float(long) * GIGA[other]) <= half * GIGA[unit] + 1e-9


def test_the_readme_has_the_figures_of_the_results():
    results = (BENCH / "RESULTS.md").read_text()
    rows = rows_of_the_readme()
    assert len(rows) == 4
    for what, page, figure, beside in rows:
        row = next(line for line in results.splitlines() if line.startswith(f"| [{what}](results/{page}.md) |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert rounds_to(figure, cells[1]), f"{what}: {figure}, and {cells[1]} in RESULTS.md"
        assert rounds_to(beside, cells[2]), f"{what}: {beside}, and {cells[2]} in RESULTS.md"
        assert ("missed" in beside) == ("missed" in cells[4]), f"{what}: {cells[4]}"


def test_a_figure_that_is_not_the_measured_one_is_noticed():
    assert rounds_to("5.2 GB/s", "5.18 GB/s") and rounds_to("448 MB/s", "TCP streams: 0.448 GB/s")
    assert not rounds_to("466 MB/s", "0.448 GB/s") and not rounds_to("5.3 GB/s", "5.18 GB/s")
