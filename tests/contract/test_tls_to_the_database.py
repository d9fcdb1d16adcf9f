"""What a database URL says about TLS reaches the driver: nothing is sent in the clear to a server that cannot do it."""

from __future__ import annotations

import pytest

from weft_tasks.errors import StoreUnavailable
from weft_tasks.store.database import Database
from weft_tasks.testing.databases import Databases


def test_a_url_that_demands_tls_gets_it_or_no_connection(postgres_server: Databases) -> None:
    """The local server of the tests is built without TLS; one of DATABASE_URL may have it."""
    assert _is_encrypted(Database(f"{postgres_server.url()}?sslmode=require"))


def test_a_certificate_authority_that_is_not_there_is_an_error(postgres_server: Databases) -> None:
    database = Database(f"{postgres_server.url()}?sslmode=verify-full&sslrootcert=/nonexistent/ca.pem")
    with pytest.raises(StoreUnavailable, match=r"ca\.pem|SSL"), database.reading():
        pass


def _is_encrypted(database: Database) -> bool:
    """True also if the driver refused to speak in the clear."""
    try:
        with database.reading() as connection:
            asked = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            return bool(connection.exec_driver_sql(asked).scalar_one())
    except StoreUnavailable as refused:
        return "server does not support SSL, but SSL was required" in str(refused)
