"""A pytest plugin (`-p covering`): which test runs which line, and how long each test takes, into one JSON file.

A line is known by its text, so that it is found again when others have come before it. One that is run by nothing but
an import belongs to no test. `COVER_OUT` names the file, `COVER_SOURCE` the folders.
"""

import json
import os
from pathlib import Path

import coverage
import pytest


class Covering:
    def __init__(self) -> None:
        self.folders = os.environ["COVER_SOURCE"].split(os.pathsep)
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=[f"{f}/*" for f in self.folders])
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        self.coverage.switch_context(item.nodeid)
        result = yield
        self.coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.outcome != "passed" and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        lines: dict[str, dict[str, list[str]]] = {}
        for path in data.measured_files():
            texts, place = Path(path).read_text().splitlines(), lines.setdefault(str(path), {})
            for number, tests in data.contexts_by_lineno(path).items():
                known = place.setdefault(texts[number - 1].strip(), [])
                known += [test for test in tests if test and test not in known]
        seconds = {test: round(value, 2) for test, value in self.seconds.items() if test not in self.failed}
        found = {"seconds": seconds, "lines": lines}
        Path(os.environ["COVER_OUT"]).write_text(json.dumps(found))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Covering())
