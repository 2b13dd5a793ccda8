"""The part that all pytest files share: it records the tests that failed, for scripts/pytest-file."""

import os


def pytest_terminal_summary(terminalreporter):
    """Writes the names of failed tests into the file $STDCHK_TEST_FAILED, as pytest's command line takes them."""
    if path := os.environ.get("STDCHK_TEST_FAILED"):
        stats = terminalreporter.stats
        names = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, [])}
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(names))
