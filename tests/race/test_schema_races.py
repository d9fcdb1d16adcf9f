"""Processes of one deployment that migrate an empty database at the same moment: one does the work, nobody fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import inspect, select

from weft_tasks.settings import Settings
from weft_tasks.store import Store, limits_of
from weft_tasks.store.schema import check, migrate
from weft_tasks.store.tables import metadata, passes
from weft_tasks.store.tables import store as store_table

from .actor import Actor
from .backstage import Backstage, PostgresBackstage, SQLiteBackstage
from .conftest import RACE_BACKENDS
from .stage import Stage


@pytest.fixture(params=RACE_BACKENDS)
def stores(request: pytest.FixtureRequest, race_url: Callable[[str], str]) -> Iterator[Sequence[Store]]:
    """Three processes before their first look at a database without a schema."""
    settings = Settings(database_url=race_url(request.param))
    long = timedelta(seconds=60)
    limits = replace(limits_of(settings), statement_timeout=long, lock_wait=long, pool_size=2)
    opened = [Store.open(settings, limits=limits) for _ in range(3)]
    yield opened
    for store in opened:
        store.database.dispose()


@pytest.mark.parametrize("head_start", [0, 1, 2, 5, 20])
def test_of_two_migrations_one_does_the_work(stores: Sequence[Store], head_start: int) -> None:
    """The second one begins when the first has done so many steps, and then goes first whenever it can."""
    url = stores[0].database.engine.url.render_as_string(hide_password=False)
    backstage: Backstage = SQLiteBackstage(url) if stores[0].database.is_sqlite else PostgresBackstage(url)
    steps: list[str] = []

    def choose(ready: Sequence[Actor]) -> Actor:
        by_name = {actor.name: actor for actor in ready}
        chosen = by_name.get("a") if len(steps) < head_start else by_name.get("b")
        steps.append("step")
        return chosen or ready[0]

    actors = [Actor("a", stores[0]), Actor("b", stores[1])]
    play = Stage(actors, backstage).play(dict.fromkeys(("a", "b"), migrate_it), choose, lambda step: None)
    backstage.close()

    assert [actor.answer for actor in actors] == [None, None], play
    assert not play.has_deadlocked
    check(stores[2].database)
    with stores[2].database.reading() as connection:
        assert set(inspect(connection).get_table_names()) >= set(metadata.tables)
        assert len(connection.execute(select(store_table)).all()) == 1
        assert len(connection.execute(select(passes)).all()) == 5


def migrate_it(store: Store) -> None:
    migrate(store.database)
