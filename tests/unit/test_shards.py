"""Shards: every workflow is in one of them, whatever their number, and beat has an entry for each."""

from __future__ import annotations

from typing import Any, cast

import pytest
from celery import Celery

from weft_tasks.celery_host.schedule import beat_entries
from weft_tasks.celery_host.tasks import PassTask
from weft_tasks.errors import InvalidInput, SettingsError
from weft_tasks.results import PassKind
from weft_tasks.settings import Settings
from weft_tasks.shards import BUCKETS, MAX_SHARDS, WHOLE, Shard, bucket_of, shards_of
from weft_tasks.weft import Weft


@pytest.mark.parametrize("count", range(1, MAX_SHARDS + 1))
def test_the_shards_cover_every_bucket_once(count: int) -> None:
    assert [bucket for shard in shards_of(count) for bucket in shard.buckets] == list(range(BUCKETS))


def test_the_bucket_of_an_id_never_changes_because_rows_keep_it() -> None:
    assert [bucket_of(id) for id in ("", "w", "case-10011", "zażółć")] == [0, 786, 692, 906]


@pytest.mark.parametrize(("index", "of"), [(-1, 4), (4, 4), (0, 0), (0, MAX_SHARDS + 1), (True, 4), ("0", 4), (0.0, 1)])
def test_there_is_no_such_shard(index: Any, of: Any) -> None:
    with pytest.raises(InvalidInput):
        Shard(index, of)


@pytest.mark.parametrize(
    ("given", "said"), [(0, "at least 1"), (65, "at most 64"), (2.5, "whole number"), ("4", "whole")]
)
def test_a_number_of_shards_that_cannot_be_is_refused(given: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=f"weft_shards.*{said}"):
        Settings.from_mapping({"weft_shards": given})


def test_one_shard_has_the_entries_it_always_had() -> None:
    entries = beat_entries(Settings())
    assert list(entries) == ["weft.renew_claims", "weft.reclaim_claims", "weft.poll_signals", "weft.poll_updates"]
    assert all(set(entry) == {"task", "schedule", "options"} for entry in entries.values())


def test_four_shards_have_an_entry_each_for_every_pass() -> None:
    entries = beat_entries(Settings(shards=4))
    assert len(entries) == 16
    assert entries["weft.poll_signals[2/4]"]["task"] == "weft.poll_signals"
    assert entries["weft.poll_signals[2/4]"]["kwargs"] == {"shard": 2, "shards": 4}


class _Suite:
    """A Weft whose ticks are only noted."""

    def __init__(self) -> None:
        self.asked: list[tuple[PassKind, Shard]] = []
        self.ticks = self.flusher = self

    def tick(self, kind: PassKind, shard: Shard) -> dict[str, Any]:
        self.asked.append((kind, shard))
        return {}

    def soon(self) -> None: ...


@pytest.mark.parametrize(("message", "shard"), [({}, WHOLE), ({"shard": 2, "shards": 4}, Shard(2, 4))])
def test_a_tick_is_for_the_shard_that_it_names_or_for_the_whole_store(message: dict[str, int], shard: Shard) -> None:
    suite = _Suite()
    PassTask(cast("Weft", suite), PassKind.RENEWAL).run(**message)
    assert suite.asked == [(PassKind.RENEWAL, shard)]


@pytest.mark.parametrize("message", [{"shard": 4, "shards": 4}, {"shard": 1}, {"shard": "0", "shards": 4}])
def test_a_tick_for_a_shard_that_there_is_not_is_discarded(message: dict[str, Any]) -> None:
    suite = _Suite()
    task = Celery(set_as_current=False).register_task(PassTask(cast("Weft", suite), PassKind.RENEWAL))
    task.run(**message)
    assert suite.asked == []
