"""The benches' results: figures, their ratios to ceilings, and the page that presents them."""

import dataclasses
import fnmatch
import re
import statistics
import time


class Failure(Exception):
    """The reason why a section must not be published."""


HOW_TO_READ = " ".join("""
How to read the tables: figures are minimum / median / maximum over the rounds of one run of a section. A figure and its
ceiling took turns, round by round; the ratio is formed in each round, and its minimum / median / maximum is
given. An aim is held against the median, an upper limit against the maximum. GB are 10^9 bytes. Where a section does not say
otherwise all data written is random: it cannot be compressed, and no chunk occurs twice. The machine above is that of the
section written last; each section names its processor.""".split())


@dataclasses.dataclass
class Series:
    """A measurement: a value for each round, and the time (seconds since 1970) when it was taken. The default
    is now; programs that measure give their own time."""

    values: list
    unit: str
    taken: float = dataclasses.field(default_factory=time.time)

    def __post_init__(self):
        if not self.values:
            raise Failure("a measurement has no values")

    @property
    def median(self):
        return statistics.median(self.values)

    def over(self, other):
        """Ratios by round: both took turns, so that a disturbance in a round affects both."""
        if len(self.values) != len(other.values):
            raise Failure("a figure and its ceiling were not measured in the same rounds")
        return Series([mine / theirs for mine, theirs in zip(self.values, other.values)], "",
                      min(self.taken, other.taken))

    def text(self):
        numbers = (min(self.values), self.median, max(self.values))
        return " / ".join(number_text(number) for number in numbers) + (f" {self.unit}" if self.unit else "")


def number_text(number):
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 10 else f"{number:.1f}"


@dataclasses.dataclass
class Aim:
    """The aim for a row: for the ratio to the ceiling if there is one, otherwise for the figure."""

    least: float = None
    most: float = None
    must: bool = False  # a promise: if it is missed, the page says so and the run fails

    def met(self, series):
        return (self.least is None or series.median >= self.least) and (
            self.most is None or max(series.values) <= self.most)

    def text(self):
        limits = [f"{word} {limit:g}" for word, limit in (("at least", self.least), ("at most", self.most))
                  if limit is not None]
        return " and ".join(limits)


@dataclasses.dataclass
class Row:
    name: str
    figure: Series
    ceiling_name: str
    ceiling: Series
    ratio: Series
    aim: Aim

    @property
    def missed(self):
        return self.aim is not None and not self.aim.met(self.ratio or self.figure)

    @property
    def failed(self):
        return self.missed and self.aim.must


class Report:
    """The figures of one section. `taken`: when, of which commit, on which machine. Required rows: the names
    in `aims`; the names in `ratios`, with a ratio; the names in `figures`. `ratios` and `figures` may have
    patterns (fnmatch)."""

    def __init__(self, aims, taken, ratios=(), figures=()):
        self.started = time.time()
        self.aims, self.ratios, self.figures = aims, ratios, figures
        self.taken = taken
        self.title = self.text = ""
        self.rows = []
        self.was_run = True

    def section(self, title, text):
        self.title, self.text = title, " ".join(text.split())
        print(f"\n{title}", flush=True)

    def not_run(self, why):
        self.text, self.rows, self.was_run = f"NOT RUN: {why}", [], False
        print(f"  {self.text}", flush=True)

    def add(self, name, figure, ceiling_name="", ceiling=None, aim=None):
        for series in (figure, ceiling):
            if series is not None and series.taken < self.started:
                raise Failure(f"{name}: a measurement is older than this run")
        aim = aim or self.aims.get(name)
        if aim is not None and aim.least is not None and ceiling is None:
            raise Failure(f"{name}: there is no ceiling to compare with")
        ratio = figure.over(ceiling) if ceiling is not None else None
        row = Row(name, figure, ceiling_name, ceiling, ratio, aim)
        self.rows.append(row)
        mark = f"   {ratio.text()} of {ceiling_name}" if ratio else ""
        print(f"  {name}: {figure.text()}{mark}{'   MISSED' if row.missed else ''}", flush=True)

    def check_complete(self):
        if not (self.aims or self.ratios or self.figures):
            raise Failure("no row is required: what is absent would not be missed")
        names = [row.name for row in self.rows]
        compared = [row.name for row in self.rows if row.ratio]
        absent = [name for name in self.aims if name not in names]
        absent += [name for name in self.figures if not fnmatch.filter(names, name)]
        absent += [f"{name} (its ratio)" for name in self.ratios if not fnmatch.filter(compared, name)]
        if absent and self.was_run:
            raise Failure("not measured: " + "; ".join(sorted(absent)))

    def markdown(self):
        lines = [f"## {self.title}", "", f"*{self.taken}* {self.text}", ""] + (table(self.rows) + [""] if self.rows else [])
        return "\n".join(lines)


def updated(page, section, head, facts):
    """The page with this section in place of the one with the same title. The head counts what all sections
    say."""
    title = section.split("\n", 1)[0]
    sections = re.split(r"(?m)^(?=## )", page)[1:]
    sections = {each.split("\n", 1)[0]: each.rstrip() + "\n" for each in sections} | {title: section}
    rows = [line for each in sections.values() for line in each.splitlines() if line.startswith("| ")]
    met = [row for row in rows if row.endswith(", met |")]
    missed = [row.split(" | ")[0].removeprefix("| ") for row in rows if row.endswith(", **missed** |")]
    lines = ["# Results", "", head, ""] + [f"- {key}: {value}" for key, value in facts.items()] + [""]
    lines += [f"{len(met)} of {len(met) + len(missed)} aims are met."
              + (" Missed: " + "; ".join(missed) + "." if missed else ""), "", HOW_TO_READ, ""]
    return "\n".join(lines + list(sections.values()))


def table(rows):
    """A table with the columns that at least one row fills."""
    columns = [("what", [row.name for row in rows]),
               ("figure", [row.figure.text() for row in rows]),
               ("ceiling", [f"{row.ceiling_name}: {row.ceiling.text()}" if row.ceiling else ""
                            for row in rows]),
               ("ratio", [row.ratio.text() if row.ratio else "" for row in rows]),
               ("aim", [(row.aim.text() + (", **missed**" if row.missed else ", met")) if row.aim else ""
                        for row in rows])]
    columns = [(name, cells) for name, cells in columns if any(cells)]
    lines = ["| " + " | ".join(name for name, _ in columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in zip(*(cells for _, cells in columns))]
