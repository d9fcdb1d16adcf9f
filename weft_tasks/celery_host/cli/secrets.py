"""Passwords stay out of what is printed: those of every URL that the application or its environment names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from celery import Celery

HIDDEN = "***"
URL_SETTINGS = (
    "broker_url",
    "broker_read_url",
    "broker_write_url",
    "result_backend",
    "weft_database_url",
    "weft_redis_url",
)
URL_VARIABLES = ("BROKER_URL", "CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "RESULT_BACKEND", "DATABASE_URL")
_LOGIN_IN_URL = re.compile(r"(\w://[^\s:/@]*):[^\s]*?@(?=[^\s@]*(?:\s|$))")
_PASSWORD_IN_QUERY = re.compile(r"((?:ssl|sentinel_)?passw(?:or)?d=)[^\s&'\"]+", re.IGNORECASE)


def hide_secrets(text: str, app: Celery) -> str:
    """`text` without any password that the application knows, and without whatever looks like one in a URL."""
    for secret in sorted(_secrets_of(app), key=len, reverse=True):
        # Only where it stands alone: a password as short as a word would tear other words apart.
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    text = _LOGIN_IN_URL.sub(rf"\1:{HIDDEN}@", text)
    return _PASSWORD_IN_QUERY.sub(rf"\1{HIDDEN}", text)


def _secrets_of(app: Celery) -> set[str]:
    urls = [*(app.conf.get(name) for name in URL_SETTINGS), *(os.environ.get(name) for name in URL_VARIABLES)]
    found = {secret for url in urls for secret in _secrets_in(url)}
    found.update(_passwords_among(app.conf.get("broker_transport_options") or {}))
    found.update(secret for name in ("broker_password", "redis_password") if (secret := app.conf.get(name)))
    return {str(secret) for secret in found if secret}


def _secrets_in(urls: object) -> Iterator[str]:
    """The passwords of a URL, of several with `;` between them, or of a list: as they are written and as they are."""
    if isinstance(urls, list | tuple):
        for url in urls:
            yield from _secrets_in(url)
        return
    if not isinstance(urls, str):
        return
    for url in urls.split(";"):
        login = url.partition("://")[2].rpartition("@")[0]
        written = [login.partition(":")[2]]
        try:
            written += [value for key, value in parse_qsl(urlsplit(url).query) if "passw" in key.lower()]
        except ValueError:
            written += []
        for secret in written:
            yield from (secret, unquote(secret))


def _passwords_among(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _passwords_among(value)
        elif "passw" in str(key).lower() and isinstance(value, str):
            yield value
