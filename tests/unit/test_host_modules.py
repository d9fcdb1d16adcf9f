"""A client that has not imported its application's workflows starts them all the same, as a worker would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

APPLICATION = """
from celery import Celery
from weft_tasks import Weft

app = Celery("shop", broker="memory://")
app.conf.update(weft_database_url="sqlite:///shop.sqlite3", weft_redis_url="redis://127.0.0.1:9/0")
{how}
weft = Weft(app)
"""
WORKFLOWS = """
from shop.celery import weft


@weft.workflow("order")
def order(turn):
    turn.wait("paid")
"""
CLIENT = """
from shop.celery import weft
from weft_tasks import UnknownWorkflowType

weft.migrate()
try:
    weft.start("nonsense")
except UnknownWorkflowType as error:
    print(error)
print(weft.start("order", id="order-1").id)
"""
HOWS = ('app.autodiscover_tasks(["shop"], related_name="workflows")', 'app.conf.include = ["shop.workflows"]')


def test_a_client_knows_what_the_application_includes_or_discovers(tmp_path: Path) -> None:
    for number, how in enumerate(HOWS):
        folder = tmp_path / str(number) / "shop"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "celery.py").write_text(APPLICATION.format(how=how))
        (folder / "workflows.py").write_text(WORKFLOWS)
        ran = subprocess.run(
            [sys.executable, "-c", CLIENT], cwd=folder.parent, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines() == ["no workflow type 'nonsense' is registered here (known: order)", "order-1"]
