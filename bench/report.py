"""What a run of the benches has found: figures, their ratios to ceilings, and the page that says so."""

import dataclasses
import statistics
import time


class Failure(Exception):
    """Why this run must not be published."""


HOW_TO_READ = " ".join("""
How to read the tables: figures are minimum / median / maximum over the rounds of one run. A figure and its
ceiling took turns, round by round; the ratio is formed in each round, and its minimum / median / maximum is
given. An aim is held against the median, an upper limit against the maximum. GB are 10^9 bytes. All data written
is random: it cannot be compressed, and no chunk occurs twice.""".split())


@dataclasses.dataclass
class Series:
    """One measurement: a value for each round, and when (seconds since 1970) it was taken."""

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
        """Ratios round by round: the two took turns, and what disturbs one round disturbs both."""
        if len(self.values) != len(other.values):
            raise Failure("a figure and its ceiling were not measured in the same rounds")
        return Series([mine / theirs for mine, theirs in zip(self.values, other.values)], "", self.taken)

    def text(self):
        numbers = (min(self.values), self.median, max(self.values))
        return " / ".join(number_text(number) for number in numbers) + (f" {self.unit}" if self.unit else "")


def number_text(number):
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 10 else f"{number:.1f}"


@dataclasses.dataclass
class Aim:
    """What is aimed at: of the ratio to the ceiling where there is one, otherwise of the figure."""

    least: float = None
    most: float = None

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


class Report:
    """The figures of one run, in sections. `aims`: by the names of the rows that must come."""

    def __init__(self, aims):
        self.started = time.time()
        self.aims = aims
        self.sections = []

    def section(self, title, text):
        self.sections.append((title, " ".join(text.split()), []))
        print(f"\n{title}", flush=True)

    def not_run(self, why):
        """The section that was begun last has no figures."""
        self.sections[-1] = (self.sections[-1][0], f"NOT RUN: {why}", [])

    def add(self, name, figure, ceiling_name="", ceiling=None, aim=None):
        for series in (figure, ceiling):
            if series is not None and series.taken < self.started:
                raise Failure(f"{name}: a measurement is older than this run")
        aim = aim or self.aims.get(name)
        if aim is not None and aim.least is not None and ceiling is None:
            raise Failure(f"{name}: there is no ceiling to compare with")
        ratio = figure.over(ceiling) if ceiling is not None else None
        row = Row(name, figure, ceiling_name, ceiling, ratio, aim)
        self.sections[-1][2].append(row)
        mark = f"   {ratio.text()} of {ceiling_name}" if ratio else ""
        print(f"  {name}: {figure.text()}{mark}{'   MISSED' if row.missed else ''}", flush=True)

    def rows(self):
        return [row for _, _, rows in self.sections for row in rows]

    def check_complete(self):
        absent = set(self.aims) - {row.name for row in self.rows()}
        if absent:
            raise Failure("not measured: " + ", ".join(sorted(absent)))

    def missed(self):
        return [row.name for row in self.rows() if row.missed]

    def markdown(self, head, facts):
        aimed = [row for row in self.rows() if row.aim is not None]
        lines = ["# Results", "", head, ""]
        lines += [f"- {key}: {value}" for key, value in facts.items()] + [""]
        missed = self.missed()
        lines += [f"{len(aimed) - len(missed)} of {len(aimed)} aims are met."
                  + (" Missed: " + "; ".join(missed) + "." if missed else ""), "", HOW_TO_READ, ""]
        for title, text, rows in self.sections:
            lines += [f"## {title}", "", text, ""] + (table(rows) + [""] if rows else [])
        return "\n".join(lines)


def table(rows):
    """With the columns that at least one row fills."""
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
