"""The Celery application behind `celery -A weft_tasks`.

It is configured by the module that CELERY_CONFIG_MODULE names, else by `celeryconfig.py` in the working directory, else
by the same values from within the package.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from celery import Celery
from celery.utils.imports import cwd_in_path

from weft_tasks.weft import Weft

CONFIGURATION = "celeryconfig"
DEFAULT = "weft_tasks.celery_host.default_config"


def configuration() -> str:
    """The name of the module. One that the environment names need not be there: Celery says so when it is not."""
    if named := os.environ.get("CELERY_CONFIG_MODULE"):
        return named
    with cwd_in_path():
        return CONFIGURATION if find_spec(CONFIGURATION) else DEFAULT


app = Celery("weft_tasks")
app.config_from_object(configuration())
weft = Weft(app)
