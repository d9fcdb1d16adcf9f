"""The files for probes, by themselves. `tests/cluster/test_probed_files.py` has them in a worker."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from weft_tasks.celery_host.health_files import ALIVE, READY, HealthFiles
from weft_tasks.errors import SettingsError


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_folder_is_made_and_what_an_engine_before_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "weft"
    folder.mkdir(parents=True)
    for name in (ALIVE, READY):
        (folder / name).touch()
    HealthFiles(str(folder))
    assert names(folder) == set()
    HealthFiles(str(tmp_path / "new" / "weft"))
    assert (tmp_path / "new" / "weft").is_dir()


def test_a_beat_that_the_store_took_makes_ready_and_one_that_it_did_not_ends_it(tmp_path: Path) -> None:
    files = HealthFiles(str(tmp_path))
    files.beat_begins()
    assert names(tmp_path) == {ALIVE}
    files.beat_succeeded()
    assert names(tmp_path) == {ALIVE, READY}
    files.beat_begins()
    files.is_not_ready()
    assert names(tmp_path) == {ALIVE}
    files.has_stopped()
    assert names(tmp_path) == set()


def test_a_folder_that_cannot_be_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        SettingsError, match=r"weft_health_folder \(.*file/in-it\) cannot be written to: Not a directory"
    ):
        HealthFiles(str(tmp_path / "file" / "in-it"))


def test_a_folder_that_goes_away_is_a_warning_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "weft"
    files = HealthFiles(str(folder))
    folder.rmdir()
    with caplog.at_level(logging.WARNING):
        files.beat_begins()
    assert "weft.health.failed" in caplog.text


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = HealthFiles(None)
    files.beat_begins()
    files.beat_succeeded()
    files.is_not_ready()
    files.has_stopped()
    assert names(tmp_path) == set()
