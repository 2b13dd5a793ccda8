"""What all tests of pytest share: scripts/pytest-file learns which of them failed."""

import os


def pytest_terminal_summary(terminalreporter):
    """With STDCHK_TEST_FAILED set, writes the name of each test that failed, as pytest's command line takes it."""
    if path := os.environ.get("STDCHK_TEST_FAILED"):
        stats = terminalreporter.stats
        names = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, [])}
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(names))
