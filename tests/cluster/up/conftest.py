"""One `make up` for all tests of this folder, as on a fresh clone and without root. The last test of all stops it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import copy_checkout
from deployment import show_logs
from stack import Stack

from weft_tasks.testing.account import Account, is_open_to_all, make_folder, plain_account


@pytest.fixture(scope="session")
def plain() -> Account | None:
    """An account without privileges, if this is root and the account can reach the interpreter."""
    account = plain_account()
    folders = (Path(sys.prefix), Path(sys.executable).resolve().parent)
    return account if all(map(is_open_to_all, folders)) else None


@pytest.fixture(scope="session")
def clone(plain: Account | None) -> Iterator[Path]:
    folder = copy_checkout(make_folder("weft-clone-", plain))
    for path in (folder, *folder.rglob("*")) if plain else ():
        os.chown(path, plain.uid, plain.gid)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def stack(clone: Path, plain: Account | None) -> Iterator[Stack]:
    stack = Stack(clone, plain)
    try:
        with stack.make:
            stack.wait_until_well()
            yield stack
    finally:
        show_logs(stack.make)
        stack.make.log_path.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def killed(stack: Stack) -> str:
    """The name of an engine that was killed with a parked order, which has moved to the other."""
    stack.order(parked="good")
    (busy,) = (engine["node"] for engine in stack.status()["engines"] if engine["claims"])
    name = str(busy).partition("@")[0]
    stack.main_process(name).kill()
    stack.make.wait_for_log("reclaimed=1")
    return name
