"""The demo's check finds what it is there to find, and its exit status says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from examples.eventlog import demo
from examples.eventlog.faults import Faults, Outcome
from examples.eventlog.ledger import Progress
from examples.eventlog.log import EventLog, LogError, read_log
from examples.eventlog.report import Report
from examples.eventlog.verify import CommittedCase, Findings, Receipt, Step, verify
from weft_tasks.settings import Settings

LOG_TEXT = "case_id,activity,timestamp\na,open,1\nb,open,2\na,check,3\na,check,4\nb,close,5\na,close,6\n"
RECEIPTS = [Receipt("a", 1), Receipt("b", 1), Receipt("a", 2), Receipt("a", 3), Receipt("b", 2), Receipt("a", 4)]
A = CommittedCase(
    is_completed=True,
    steps=(Step(1, "open"), Step(2, "check"), Step(3, "check"), Step(4, "close")),
    epochs=(1, 1, 2, 2, 4),
)
B = CommittedCase(is_completed=True, steps=(Step(1, "open"), Step(2, "close")), epochs=(1, 1))


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    path = tmp_path / "log.csv"
    path.write_text(LOG_TEXT)
    return read_log(path)


def found(log: EventLog, a: CommittedCase, b: CommittedCase = B) -> Findings:
    return verify(log, RECEIPTS, {"a": a, "b": b})


class TestTheCheck:
    def test_finds_nothing_in_a_run_that_is_as_the_log(self, log: EventLog) -> None:
        assert found(log, A) == Findings(
            workflows=2, events=6, completed=2, mismatched=0, lost_signals=0, duplicate_commits=0
        )

    def test_finds_a_case_in_another_order(self, log: EventLog) -> None:
        one, two, three, four = A.steps
        assert found(log, replace(A, steps=(one, two, four, three))).mismatched == 1

    def test_finds_an_acknowledged_signal_that_nobody_took(self, log: EventLog) -> None:
        findings = found(log, replace(A, steps=A.steps[:-1], is_completed=False))
        assert (findings.completed, findings.mismatched, findings.lost_signals) == (1, 1, 1)

    def test_finds_a_lost_signal_whose_activity_came_twice(self, log: EventLog) -> None:
        """Two steps are called `check`; only their numbers tell that the second is the first again."""
        one, two, _three, four = A.steps
        findings = found(log, replace(A, steps=(one, two, two, four)))
        assert (findings.mismatched, findings.lost_signals, findings.duplicate_commits) == (0, 1, 1)

    def test_finds_a_signal_committed_twice(self, log: EventLog) -> None:
        findings = found(log, replace(A, steps=(*A.steps, A.steps[-1])))
        assert (findings.mismatched, findings.duplicate_commits) == (1, 1)

    def test_finds_a_commit_by_an_owner_of_an_earlier_epoch(self, log: EventLog) -> None:
        assert found(log, replace(A, epochs=(1, 1, 2, 1, 4))).duplicate_commits == 1

    def test_counts_a_case_that_the_store_does_not_have(self, log: EventLog) -> None:
        findings = verify(log, RECEIPTS, {"a": A})
        assert (findings.completed, findings.mismatched, findings.lost_signals) == (1, 1, 2)


class TestTheExitStatus:
    @pytest.mark.parametrize(
        ("wrong", "status"),
        [
            ({}, 0),
            ({"completed": 1}, 1),
            ({"mismatched": 1}, 1),
            ({"lost_signals": 1}, 1),
            ({"duplicate_commits": 1}, 1),
        ],
        ids=str,
    )
    def test_is_0_only_if_everything_is_right(
        self, wrong: dict[str, int], status: int, log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(demo, "demonstrate", lambda *_: report_of(replace(found(log, A), **wrong)))
        assert demo.main(["--output", str(tmp_path)]) == status
        assert json.loads((tmp_path / "report.json").read_text())["workflows"] == 2

    def test_is_1_for_a_file_that_is_no_event_log(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "log.csv"
        path.write_text("case,what\n1,2\n")
        assert demo.main(["--log", str(path), "--output", str(tmp_path / "output")]) == 1
        assert "has no column case_id, activity, timestamp" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "case_id,activity,timestamp\n", "case_id,activity\na,b\n"])
def test_a_log_without_columns_or_events_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(LogError, match=r"log\.csv has no"):
        read_log(path)


def test_the_sample_has_sixty_cases_that_overlap() -> None:
    sample = read_log(demo.SAMPLE)
    assert len(sample.cases) == 60
    assert 300 < len(sample.events) < 400
    changes = sum(one.case_id != other.case_id for one, other in zip(sample.events, sample.events[1:], strict=False))
    assert changes > 0.9 * len(sample.events)


def report_of(findings: Findings) -> Report:
    outcome = Outcome(engine_id="e", held=1, moved_ms=(5,), moved_to={"n": 1}, loads={"n": 1})
    progress = Progress(started=2, completed=2, sent=6, consumed=6, takeovers=1, refused=1, engines={})
    faults = Faults(killed=outcome, drained=outcome, frozen=outcome)
    return Report.of(findings, faults, progress, Settings(), wall_s=1.0)
