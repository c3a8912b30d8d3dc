"""`pytest --minutes`: what each minute buys. Seconds of tests by folder, and the dearest ones, set-up included."""

from collections import Counter

import pytest

NUM_DEAREST = 15


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", action="store_true", help="what each minute buys: seconds by folder, dearest tests")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--minutes"):
        return
    seconds: Counter = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] += report.duration
    folders, counts = Counter(), Counter()
    for test, spent in seconds.items():
        folder = "/".join(test.split("::")[0].split("/")[:2])
        folders[folder] += spent
        counts[folder] += 1
    terminalreporter.section("what each minute buys, in seconds of one core")
    for folder, spent in folders.most_common():
        terminalreporter.write_line(f"{spent:7.1f} {folder} ({counts[folder]} tests)")
    terminalreporter.write_line(f"{sum(folders.values()):7.1f} in all; the dearest:")
    for test, spent in seconds.most_common(NUM_DEAREST):
        terminalreporter.write_line(f"{spent:7.1f} {test}")
