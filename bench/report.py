"""The benches' results: figures, their ratios to ceilings, and the pages that present them."""

import dataclasses
import fnmatch
import inspect
import re
import statistics
import time


class Failure(Exception):
    """An error that forbids to publish a section. Its text is the reason."""


HOW_TO_READ = " ".join("""
How to read the sections: figures are minimum / median / maximum over the rounds of one run of a section. A figure and its
ceiling took turns, round by round. Each round has a ratio, and the table has the minimum / median / maximum of the ratios.
The median must reach an aim, and the maximum must stay below an upper limit. GB are 10^9 bytes. Written data is random unless a
section says otherwise, so nothing can compress it, and no chunk occurs twice. The machine above ran the newest section. Each
section names its processor and its commit.""".split())


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


@dataclasses.dataclass
class Difference(Series):
    """A difference of two measured times. Its smallest values may be noise of both."""

    def text(self):
        if min(self.values) > 0:
            return super().text()
        return f"not seen beside the noise; at most {number_text(max(0, *self.values))} {self.unit}"


def number_text(number):
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 10 else f"{number:.1f}"


@dataclasses.dataclass
class Aim:
    """The aim of a row: a limit for its ratio to the ceiling or, without a ceiling, for its figure."""

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


def laid_out(text):
    """Joins the lines of each paragraph and each list item of an introduction."""
    return re.sub(r"(?<!\n)\n(?!\n|- )\s*", " ", inspect.cleandoc(text))


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
        self.title, self.text = title, laid_out(text)
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

    def add_difference(self, name, difference):
        """A row for a difference of two measured times. Where noise hides it, the page gives only an upper bound."""
        self.add(name, Difference(difference.values, difference.unit, difference.taken))

    def markdown(self):
        """The section's own page."""
        lines = [f"# {self.title}", "", f"*{self.taken}*", "", self.text, ""] + (table(self.rows) + [""] if self.rows else [])
        return "\n".join(lines)


@dataclasses.dataclass
class Headline:
    """A row of a section's page that the first page shows: the section, the row, and what the row is."""

    section: str
    row: str
    what: str


def medians(cell):
    """The medians in "1 / 2 / 3 GB/s", and in "name: 1 / 2 / 3 GB/s"."""
    return re.sub(r"\S+ / (\S+) / \S+", r"\1", cell)


def cells_of(page, name):
    """The row of this name on a section's page, by column."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")]
    return next((dict(zip(rows[0], row)) for row in rows if row[0] == name), None)


def aims_of(page):
    """The numbers of aims that a section's page has, and the names of those that are missed."""
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    missed = [row.split(" | ")[0].removeprefix("| ") for row in rows if row.endswith(", **missed** |")]
    return sum(row.endswith(", met |") for row in rows) + len(missed), missed


def headline_table(pages, headlines):
    lines = ["| what | median | beside it, in the same run | ratio | aim |", "|---|---|---|---|---|"]
    for each in headlines:
        cells = cells_of(pages.get(each.section, ""), each.row)
        if cells is None:
            continue
        columns = [medians(cells.get(column, "")) for column in ("figure", "ceiling", "ratio")] + [cells.get("aim", "")]
        lines.append(f"| [{each.what}](results/{each.section}.md) | " + " | ".join(columns) + " |")
    return lines


def section_table(pages):
    lines = ["| section | taken | aims met |", "|---|---|---|"]
    for name, page in pages.items():
        title = page.split("\n", 1)[0].removeprefix("# ")
        taken = re.search(r"^\*(\S+), (commit \S+),", page, re.MULTILINE)
        count, missed = aims_of(page)
        state = "not run" if "\nNOT RUN: " in page else f"{count - len(missed)} of {count}" if count else ""
        lines.append(f"| [{title}](results/{name}.md) | {f'{taken[1]}, {taken[2]}' if taken else ''} | {state} |")
    return lines


def index(pages, headlines, head, facts):
    """The first page of the results. `pages`: each section's page by the section's name, in order."""
    missed = [f"[{name}](results/{section}.md)" for section, page in pages.items() for name in aims_of(page)[1]]
    count = sum(aims_of(page)[0] for page in pages.values())
    lines = ["# Results", "", head, ""] + headline_table(pages, headlines)
    lines += ["", f"{count - len(missed)} of {count} aims are met." + (" Missed aims:" if missed else ""), ""]
    if missed:
        lines += [*(f"- {each}" for each in missed), ""]
    lines += section_table(pages) + [""] + [f"- {key}: {value}" for key, value in facts.items()]
    return "\n".join(lines + ["", HOW_TO_READ, ""])


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
