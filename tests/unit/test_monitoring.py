"""The alert rules, their pages and the dashboard, held against a scrape and against the tools that read them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from weft_tasks.celery_host.cli import weft as command_line
from weft_tasks.metrics import catalogue
from weft_tasks.metrics.collector import WeftCollector
from weft_tasks.metrics.tally import Tally
from weft_tasks.settings import Settings
from weft_tasks.store import Store
from weft_tasks.store.clock import ManualClock
from weft_tasks.weft import Weft

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/alerts.yml"
RULE_TESTS = ROOT / "deploy/prometheus/alerts_test.yml"
DASHBOARD = ROOT / "deploy/grafana/weft.json"
PAGES = ROOT / "docs/alerts"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian package prometheus)")

OF_THE_SCRAPER = {"job", "instance"}
SELECTOR = re.compile(r"(weft_[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"')


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def panels() -> dict[str, dict[str, Any]]:
    found = json.loads(DASHBOARD.read_text())["panels"]
    return {panel["title"]: panel for panel in found if panel["type"] != "row"}


def expressions() -> dict[str, str]:
    """Every PromQL expression there is, by where it stands."""
    of_rules = {name: rule["expr"] for name, rule in alerts().items()}
    of_panels = {
        f"{title} {target['refId']}": target["expr"] for title, panel in panels().items() for target in panel["targets"]
    }
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    of_variables = {
        f"variable {variable['name']}": variable["definition"] for variable in variables if "definition" in variable
    }
    return {**of_rules, **of_panels, **of_variables}


@pytest.fixture
def scraped(fresh_store: Callable[[str], tuple[Store, ManualClock]]) -> Mapping[str, set[str]]:
    """By the name of every sample that a busy fleet shows, the labels that it has."""
    store, _clock = fresh_store("sqlite")
    store.engines.register("a", node="a@h", host="h", pid=1, types=["permit"], slots=2)
    tally = Tally()
    for metric in catalogue.COUNTED:
        tally.count(metric, dict.fromkeys(metric.labels, "some"))
    for metric in catalogue.TIMED:
        tally.observe(metric, 1, dict.fromkeys(metric.labels, "some"))
    store.counters.add(tally.take())
    store.pass_marks.begin("reclaim", "token")
    store.pass_marks.finish("reclaim", "token", "{}", took=Settings().renew_interval)
    registry = CollectorRegistry()
    registry.register(WeftCollector(cast("Weft", SimpleNamespace(store=store, settings=Settings()))))
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_every_metric_that_a_rule_or_a_panel_names_is_in_a_scrape_with_the_labels_that_it_asks_for(
    scraped: Mapping[str, set[str]],
) -> None:
    for place, expression in expressions().items():
        for name, matchers in SELECTOR.findall(expression):
            assert name in scraped, f"{place}: {name}"
            asked = {label for label, _operator, _value in MATCHER.findall(matchers)}
            assert asked <= scraped[name] | OF_THE_SCRAPER, f"{place}: {name}{{{matchers}}}"


def test_values_of_labels_that_a_rule_or_a_panel_names_are_ones_that_there_are() -> None:
    for place, expression in expressions().items():
        for name, matchers in SELECTOR.findall(expression):
            metric = next(m for m in catalogue.METRICS if name.startswith(m.name))
            for label, _operator, value in MATCHER.findall(matchers):
                for choice in value.split("|"):
                    is_variable = choice.startswith("$")
                    assert is_variable or choice in metric.known[label], f"{place}: {label}={choice}"


def test_every_metric_of_the_catalogue_is_on_the_dashboard() -> None:
    shown = " ".join(expressions().values())
    assert [metric.name for metric in catalogue.METRICS if metric.name not in shown] == []


def test_every_rule_says_why_its_threshold_is_what_it_is_and_has_a_page() -> None:
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert set(rule["annotations"]) == {"summary", "reason", "runbook_url"}, name
        assert rule["annotations"]["runbook_url"] == f"docs/alerts/{name}.md"
    assert {page.stem for page in PAGES.glob("Weft*.md")} == set(alerts())


def test_the_list_of_pages_names_each_with_its_severity() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", (PAGES / "index.md").read_text(), re.M)
    assert [(name, file) for name, file, _severity in rows] == [(name, name) for name in alerts()]
    assert {name: severity for name, _file, severity in rows} == {
        name: rule["labels"]["severity"] for name, rule in alerts().items()
    }


@pytest.mark.parametrize("page", sorted(PAGES.glob("Weft*.md")), ids=lambda page: page.stem)
def test_a_page_says_what_it_means_what_to_look_at_and_what_to_do_and_its_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert [text.count(part) for part in ("**Means.**", "**Look at.**", "**Do.**")] == [1, 1, 1]
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (PAGES / link).exists(), link


def commands() -> Iterator[tuple[str, list[str]]]:
    for page in sorted(PAGES.glob("*.md")):
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S):
            for line in block.splitlines():
                if " weft " in line:
                    yield page.stem, shlex.split(line)


@pytest.mark.parametrize(("page", "words"), list(commands()))
def test_a_command_on_a_page_is_one_that_there_is_with_arguments_that_it_takes(page: str, words: list[str]) -> None:
    assert words[:4] == ["celery", "-A", "APP", "weft"]
    command = command_line.get_command(click.Context(command_line), words[4])
    assert command is not None, words
    command.make_context(words[4], words[5:])


def test_every_rule_is_seen_to_fire_in_its_tests() -> None:
    tested = RULE_TESTS.read_text()
    assert [name for name in alerts() if name not in tested] == []


# -- the tools


def run(*words: str | Path) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_takes_the_rules() -> None:
    run(str(PROMTOOL), "check", "rules", RULES)


@needs_promtool
def test_the_rules_fire_when_they_should_and_not_on_a_fleet_that_is_well() -> None:
    run(str(PROMTOOL), "test", "rules", RULE_TESTS)


@needs_promtool
def test_promtool_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    variables = {"$__rate_interval": "5m", "$job": "weft", "$type": ".*"}
    rules = []
    for n, panel in enumerate(panels().values()):
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in variables.items():
                expression = expression.replace(variable, value)
            assert "$" not in expression
            rules.append({"record": f"panel:{n}:{target['refId']}", "expr": expression})
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run(str(PROMTOOL), "check", "rules", file)


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert (dashboard["uid"], dashboard["title"]) == ("weft-tasks", "weft_tasks")
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["type"] in ("row", "stat", "timeseries")
        assert panel["type"] == "row" or panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
