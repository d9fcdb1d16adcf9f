"""The account of a server that refuses to run as root, and a folder that this account can enter."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from weft_tasks.testing.errors import NoPlainAccount, NoSharedFolder

PLAIN_ACCOUNTS = ("postgres", "nobody")
"""Accounts without privileges; the first that exists is taken."""


class PopenArguments(TypedDict, total=False):
    """What Popen calls the same thing."""

    user: int
    group: int
    extra_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of this machine under whose name a process is started."""

    name: str
    uid: int
    gid: int


def plain_account() -> Account | None:
    """An account without privileges if this process is root's, else None: then no change of user is needed."""
    if os.geteuid() != 0:
        return None
    entry = next(filter(None, map(_entry_of, PLAIN_ACCOUNTS)), None)
    if entry is None:
        raise NoPlainAccount(PLAIN_ACCOUNTS)
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def popen_arguments(account: Account | None) -> PopenArguments:
    return {"user": account.uid, "group": account.gid, "extra_groups": ()} if account else {}


def make_folder(prefix: str, account: Account | None) -> Path:
    """A new temporary folder that belongs to `account`, in a place that it can reach."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_place_for(account)))
    if account is not None:
        shutil.chown(folder, account.uid, account.gid)
    return folder


def is_open_to_all(folder: Path) -> bool:
    """Whether any account can get into `folder`, which takes the x bit of it and of all folders above."""
    return all(part.stat().st_mode & 0o001 for part in (folder.resolve(), *folder.resolve().parents))


def _place_for(account: Account | None) -> Path:
    places = tuple(map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")))
    return places[0] if account is None else _first_open(places, account)


def _first_open(places: Iterable[Path], account: Account) -> Path:
    found = next((place for place in places if place.is_dir() and is_open_to_all(place)), None)
    if found is None:
        raise NoSharedFolder(account.name, map(str, places))
    return found


def _entry_of(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None
