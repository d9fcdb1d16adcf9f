"""A tick while the store does not answer is a failed task in one line, not a traceback every interval."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from celery import Celery

from weft_tasks import Weft
from weft_tasks.celery_host.names import RUN_ONCE, TASK_OF_PASS


@pytest.mark.parametrize("name", [*TASK_OF_PASS.values(), RUN_ONCE])
def test_it_fails_without_a_traceback(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = Celery("away", broker="redis://127.0.0.1:1/0", backend="cache+memory://")
    app.conf.weft_database_url = f"sqlite:///{tmp_path / 'no-such-folder' / 'weft.sqlite3'}"
    Weft(app)
    with caplog.at_level(logging.INFO, logger="celery"):
        result = app.tasks[name].apply()
    assert result.state == "FAILURE"
    (line,) = [record for record in caplog.records if record.name == "celery.app.trace"]
    assert "the store did not answer" in line.getMessage()
    assert line.exc_info is None
