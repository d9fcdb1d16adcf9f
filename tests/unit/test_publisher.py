"""The connection that messages leave by is closed after one that failed, and the next message gets a new one."""

from __future__ import annotations

from celery import Celery
from kombu.connection import Connection
from kombu.messaging import Producer

from weft_tasks.celery_host.publisher import _Publisher


def test_a_connection_on_which_a_message_failed_is_closed_and_the_next_message_has_another() -> None:
    publisher = _Publisher(Celery("shop", broker="memory://", set_as_current=False), timeout=10)
    used: list[Connection] = []

    def use(connection: Connection) -> None:
        connection.connect()
        used.append(connection)

    def fails(producer: Producer) -> None:
        use(producer.connection)
        raise OSError("broken")

    def goes_well(producer: Producer) -> None:
        use(producer.connection)

    assert "broken" in str(publisher.publish(fails))
    assert publisher.publish(goes_well) is None
    assert publisher.publish(goes_well) is None
    assert [connection.connected for connection in used] == [False, True, True]
    assert used[1] is used[2]
