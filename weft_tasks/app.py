"""The Celery application behind `celery -A weft_tasks`, configured by `celeryconfig.py` from the working directory."""

from __future__ import annotations

from celery import Celery

from weft_tasks.weft import Weft

app = Celery("weft_tasks")
app.config_from_object("celeryconfig")
weft = Weft(app)
