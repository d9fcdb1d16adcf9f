"""An exporter as a process, started as docs/metrics.md says, and what a scrape of it says."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from deployment import Deployment
from prometheus_client.parser import text_string_to_metric_families

from weft_tasks.testing.waiting import wait_until


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, sample: str, **labels: str) -> float:
        """Its value; one that is not there counts as 0, like in a rate."""
        return self._samples.get((sample, frozenset(labels.items())), 0.0)

    def sum(self, sample: str) -> float:
        """Over all labels."""
        return sum(value for (name, _labels), value in self._samples.items() if name == sample)


class Exporter:
    """A running exporter."""

    def __init__(self, url: str) -> None:
        self._url = url

    def scrape(self) -> Scrape:
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            return Scrape(answer.read().decode())


@contextmanager
def exporter_of(deployment: Deployment, name: str) -> Iterator[Exporter]:
    """`celery weft exporter`, until the end of the block; it ends well when it is told to."""
    process = deployment.command("weft", "exporter", "--port", "0", name=name)
    with process:
        wait_until(lambda: "/metrics" in process.log_text(), what="the exporter to listen")
        line = next(line for line in process.log_text().splitlines() if line.endswith("/metrics"))
        yield Exporter(line.rpartition(" ")[2])
        process.terminate()
        assert process.wait() == 0, process.log_text()
