"""Where the suite's tasks go that somebody sends by name, in an application that is finalized or is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from weft_tasks import Weft
from weft_tasks.celery_host.names import MAINTENANCE_QUEUE, RUN_ONCE, RUN_TURN, TURNS_QUEUE

HOSTS = {"host.*": {"queue": "of-the-host"}}


def before(app: Celery) -> None:
    app.conf.task_routes = HOSTS
    Weft(app)


def before_and_read(app: Celery) -> None:
    app.conf.task_routes = HOSTS
    assert app.conf.task_routes == HOSTS
    Weft(app)


def from_an_object(app: Celery) -> None:
    Weft(app)
    app.config_from_object({"task_routes": HOSTS})


def in_a_list(app: Celery) -> None:
    app.config_from_object({"task_routes": [HOSTS]})
    Weft(app)


@pytest.fixture(params=[before, before_and_read, from_an_object, in_a_list])
def app(request: pytest.FixtureRequest) -> Celery:
    app = Celery("host", broker="memory://", set_as_current=False)
    configure: Callable[[Celery], None] = request.param
    configure(app)
    return app


def queue_of(app: Celery, task: str) -> Any:
    return app.amqp.router.route({}, task)["queue"].name


def test_a_client_that_finalizes_nothing_knows_our_queues_and_the_hosts(app: Celery) -> None:
    """Such as `celery call weft.run_once`, whose message nobody may consume elsewhere."""
    assert queue_of(app, RUN_ONCE) == MAINTENANCE_QUEUE
    assert queue_of(app, RUN_TURN) == TURNS_QUEUE
    assert queue_of(app, "host.task") == "of-the-host"
    assert not app.finalized


def test_at_the_end_of_the_configuration_ours_are_there_once(app: Celery) -> None:
    assert queue_of(app, RUN_ONCE) == MAINTENANCE_QUEUE
    app.finalize()
    assert queue_of(app, RUN_ONCE) == MAINTENANCE_QUEUE
    assert queue_of(app, "host.task") == "of-the-host"
    assert sum(RUN_ONCE in routes for routes in app.conf.task_routes) == 1
