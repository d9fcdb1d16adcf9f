"""The recipe for Django in docs/transactions.md, on PostgreSQL; the page itself runs it on SQLite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from test_docs import blocks_of

from weft_tasks.testing.databases import Databases

SCRIPT = """
import sys

import django
from django.conf import settings
from sqlalchemy import make_url

url = make_url(sys.argv[1])
database = {"ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username}
database |= {"PASSWORD": url.password or "", "HOST": url.host, "PORT": url.port}
settings.configure(DATABASES={"default": database})
django.setup()

from celery import Celery
from django.db import connection, transaction
from djangos import transaction_now
from weft_tasks import Weft, WorkflowAlreadyExists, WorkflowNotFound
from weft_tasks.testing.waiting import wait_until

weft = Weft(Celery("shop"))
weft.app.conf.weft_database_url = sys.argv[1]
weft.migrate()
told = []
weft.__dict__["dispatcher"] = type("Told", (), {"send_turn": lambda self, message: told.append(message.workflow_id)})()


@weft.workflow("order")
def order(turn):
    turn.wait("paid")


def exists(id):
    try:
        return bool(weft.describe(id))
    except WorkflowNotFound:
        return False


with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")

with transaction.atomic():
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES ('order-1')")
    weft.start("order", id="order-1", session=transaction_now())
    assert not exists("order-1") and not told
assert exists("order-1")
wait_until(lambda: told == ["order-1"], what="the message after the commit")

with transaction.atomic():
    weft.start("order", id="order-2", session=transaction_now())
    transaction.set_rollback(True)
assert not exists("order-2")

with transaction.atomic():
    try:
        weft.start("order", id="order-1", session=transaction_now())
    except WorkflowAlreadyExists:
        pass
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES ('order-3')")
    savepoint = transaction.savepoint()
    weft.start("order", id="order-3", session=transaction_now())
    transaction.savepoint_rollback(savepoint)
assert not exists("order-3")
with connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM orders")
    assert cursor.fetchone() == (2,)

try:
    transaction_now()
except RuntimeError as error:
    assert "no transaction is open" in str(error)
else:
    raise AssertionError("outside a transaction it must refuse")
"""


def test_the_recipe_for_django_works_on_postgresql(postgres_server: Databases, tmp_path: Path) -> None:
    [recipe] = [block for block in blocks_of("docs/transactions.md") if block.file == "djangos.py"]
    (tmp_path / "djangos.py").write_text(recipe.text, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "script.py", postgres_server.create_database()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
