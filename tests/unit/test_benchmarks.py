"""What the benchmarks conclude from what they measured."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from benchmarks import table
from benchmarks.measuring import Report, Row, compared, interleave, keep, percentile


def row(value: float | None, bound: Any, goal: float) -> Row:
    return Row(name="r", what="w", reference="x", value=value, unit="x", bound=bound, goal=goal)


@pytest.mark.parametrize(
    ("value", "bound", "goal", "passed"),
    [
        (1.5, "at most", 1.5, True),
        (1.6, "at most", 1.5, False),
        (15, "at least", 15, True),
        (14, "at least", 15, False),
        (9_999, "exactly", 10_000, False),
        (None, "at most", 1, None),
    ],
)
def test_a_row_passes_by_its_bound_and_what_was_not_measured_neither_passes_nor_fails(
    value: float | None, bound: str, goal: float, passed: bool | None
) -> None:
    assert row(value, bound, goal).passed is passed


def test_a_ratio_is_the_median_of_the_rounds_own_so_that_one_slow_round_does_not_decide() -> None:
    spent = {"ours": [1.0, 2.0, 90.0], "reference": [1.0, 1.0, 100.0]}
    at_most = compared(spent, name="r", what="w", reference="x", bound="at most", goal=1.5)
    at_least = compared(spent, name="r", what="w", reference="x", bound="at least", goal=15)
    assert (at_most.value, at_least.value) == (1.0, 1.0)
    assert at_most.spread == (1.0, 2.0, 0.9)


def test_rounds_are_interleaved_and_the_first_is_thrown_away() -> None:
    calls: list[str] = []

    def side(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    spent = interleave({"a": lambda: side("a"), "b": lambda: side("b")}, rounds=2)
    assert [sorted(calls[n : n + 2]) for n in (0, 2, 4)] == [["a", "b"]] * 3
    assert {name: len(seconds) for name, seconds in spent.items()} == {"a": 2, "b": 2}
    assert min(spent["a"] + spent["b"]) > 2


def test_percentiles_lie_between_the_values_around_them() -> None:
    assert percentile([4, 1, 3, 2], 0.5) == 2.5
    assert percentile([7], 0.95) == 7


# -- bounds


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where reports are, and a baseline for `renewal` and `polls`."""
    baseline = tmp_path / "baseline.json"
    bounds = {
        "renewal": {"r": {"at most": 4}},
        "polls": {"p": {"at least": 0.5}, "f": {"at most": 1, table.FULL: True}},
    }
    baseline.write_text(json.dumps(bounds))
    monkeypatch.setattr(table, "BASELINE", baseline)
    monkeypatch.setattr(table, "REPORTS", tmp_path)
    monkeypatch.setattr(table, "GUARDED", tmp_path / "guard")
    return tmp_path


def leave(folder: Path, name: str, **values: float | None) -> None:
    rows = [{"name": row_name, "value": value, "unit": "x"} for row_name, value in values.items()]
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"name": name, "rows": rows}))


@pytest.mark.parametrize(
    ("value", "broken"),
    [
        (4, None),
        (4.5, "r: 4.5 x, and must be at most 4 (`python -m benchmarks.renewal`)"),
        (None, "r: not measured, and must be at most 4 (`python -m benchmarks.renewal`)"),
    ],
)
def test_a_value_out_of_its_bound_is_named_with_the_bound_and_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str], value: float | None, broken: str | None
) -> None:
    leave(folder, "renewal", r=value)
    assert table.check() is (broken is None)
    assert (broken or "within the bounds") in capsys.readouterr().out


def test_a_value_below_its_bound_breaks_it_as_well(folder: Path) -> None:
    leave(folder, "polls", p=0.4, f=1)
    assert not table.check()


def test_a_row_that_is_missing_breaks_its_bound_and_a_benchmark_that_was_not_run_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(folder, "polls", p=1)
    assert not table.check()
    assert capsys.readouterr().out == (
        "not measured: renewal\nf: not measured, and must be at most 1 (`python -m benchmarks.polls`)\n"
    )


@pytest.fixture
def measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, float]]:
    """What each benchmark finds that the guard runs; one that is not here fails."""
    found: dict[str, dict[str, float]] = {}

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        name = words[2].removeprefix("benchmarks.")
        assert (words[3:5], words[5:]) == (["--sizes", "7"], ["--reports", str(folder / "guard")])
        if name not in found:
            return subprocess.CompletedProcess(words, 1, stdout="", stderr="it broke")
        leave(folder / "guard", name, **found[name])
        return subprocess.CompletedProcess(words, 0, stdout="pass: r", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(table, "SHORT", {"polls": ("--sizes", "7")})
    return found


def test_the_guard_holds_by_what_the_short_run_has_of_the_baseline(
    measured: dict[str, dict[str, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    measured["polls"] = {"p": 0.6}
    assert table.guard()
    measured["polls"] = {"p": 0.4}
    assert not table.guard()
    assert "p: 0.4 x, and must be at least 0.5 (`python -m benchmarks.polls --sizes 7`)" in capsys.readouterr().out


def test_the_guard_breaks_if_a_benchmark_does_whatever_an_earlier_run_has_left(
    folder: Path, measured: dict[str, dict[str, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    leave(folder / "guard", "polls", p=1)
    assert not table.guard()
    assert "it broke" in (said := capsys.readouterr().out)
    assert "not measured: polls\n" in said


def test_what_the_guard_runs_has_bounds_and_each_bound_is_of_a_benchmark() -> None:
    baseline = json.loads(table.BASELINE.read_text())
    assert baseline.keys() <= set(table.NAMES)
    for name in table.SHORT:
        assert [bound for bound in baseline[name].values() if not bound.get(table.FULL)]


def test_every_benchmark_of_the_table_is_a_module() -> None:
    folder = Path(table.__file__).parent
    assert [name for name in table.NAMES if not (folder / f"{name}.py").exists()] == []


# -- pictures


def report_of(*rows: Row) -> Report:
    return Report(name="renewal", rows=rows)


def compared_row() -> Row:
    spent = {"ours": [1.0, 2.0, 3.0], "reference": [1.0, 1.0, 1.0]}
    return compared(spent, name="slow", what="w", reference="x", bound="at most", goal=1.5)


def test_a_benchmark_leaves_its_json_and_a_picture_with_each_round_of_each_row_that_was_measured(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    keep(report_of(compared_row(), row(None, "at most", 1)), tmp_path)
    assert [each["value"] for each in json.loads((tmp_path / "renewal.json").read_text())["rows"]] == [2.0, None]
    picture = (tmp_path / "renewal.svg").read_text()
    assert picture.count("goal at ") == 1
    assert "slow: 2 x (2000 against 1000 ms), goal at most 1.5" in picture
    dots = picture.split('<g id="rounds-slow">')[1].split("<g id=")[0]
    assert dots.count("<use ") == 3


def test_the_same_figures_give_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = []
    for _ in range(2):
        keep(report_of(compared_row()), tmp_path)
        pictures.append((tmp_path / "renewal.svg").read_bytes())
    assert pictures[0] == pictures[1]


def test_without_matplotlib_there_is_the_json_and_a_word_about_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    keep(report_of(compared_row()), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["renewal.json"]
    assert "pip install '.[bench]'" in capsys.readouterr().err


def test_the_page_shows_a_picture_below_each_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    keep(report_of(compared_row()), table.REPORTS)
    table.write_docs()
    page = (tmp_path / table.PAGE).read_text()
    assert (
        "`python -m benchmarks.renewal`\n\n![renewal: figures, rounds and goals](images/performance/renewal.svg)"
        in page
    )
    assert (tmp_path / "docs/images/performance/renewal.svg").exists()
    assert (tmp_path / "docs/images/performance.svg").exists()


def test_every_picture_that_the_page_shows_is_there() -> None:
    page = (ROOT / "docs/performance.md").read_text()
    shown = re.findall(r"!\[[^]]*\]\(([^)]*)\)", page)
    assert len(shown) == 1 + len(re.findall(r"^`python -m benchmarks\.\w+`$", page, re.MULTILINE))
    assert [name for name in shown if not (ROOT / "docs" / name).exists()] == []
