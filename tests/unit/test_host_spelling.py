"""The `weft_*` settings reach the suite in every spelling in which Celery takes settings."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from weft_tasks import SettingsError, Weft

TTL = timedelta(seconds=60)


def weft_of(configure: Any) -> Weft:
    app = Celery("host", set_as_current=False)
    configure(app)
    return Weft(app)


@pytest.mark.parametrize("source", [dict, lambda given: SimpleNamespace(**given)], ids=["mapping", "object"])
@pytest.mark.parametrize(
    ("name", "namespace"), [("weft_claim_ttl", None), ("CELERY_WEFT_CLAIM_TTL", "CELERY"), ("WEFT_CLAIM_TTL", None)]
)
def test_a_configuration_object_is_read(source: Any, name: str, namespace: str | None) -> None:
    weft = weft_of(lambda app: app.config_from_object(source({name: 60}), namespace=namespace))
    assert weft.settings.claim_ttl == TTL


def test_what_is_set_on_the_application_is_read_beside_a_namespace() -> None:
    def configure(app: Celery) -> None:
        app.config_from_object({"CELERY_WEFT_RENEW_INTERVAL": 10}, namespace="CELERY")
        app.conf.weft_claim_ttl = 60

    settings = weft_of(configure).settings
    assert (settings.claim_ttl, settings.renew_interval) == (TTL, timedelta(seconds=10))


def test_what_is_set_on_the_application_goes_before_the_configuration_object() -> None:
    def configure(app: Celery) -> None:
        app.config_from_object({"CELERY_WEFT_CLAIM_TTL": 90}, namespace="CELERY")
        app.conf.weft_claim_ttl = 60

    assert weft_of(configure).settings.claim_ttl == TTL


@pytest.mark.parametrize(("name", "namespace"), [("CELERY_WEFT_CLAIM_TLL", "CELERY"), ("WEFT_CLAIM_TLL", None)])
def test_a_name_that_nobody_knows_is_refused_in_every_spelling(name: str, namespace: str | None) -> None:
    weft = weft_of(lambda app: app.config_from_object({name: 60}, namespace=namespace))
    with pytest.raises(SettingsError, match="unknown setting weft_claim_tll; did you mean weft_claim_ttl"):
        _ = weft.settings
