"""What `python -m build` makes, installed into a clean environment and used outside the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from checkout import ROOT, copy_checkout

from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.processes import LocalProcess

LONGEST_COMMAND_S = 120
READY = timedelta(seconds=60)
SHOP = re.search(r"<!-- run: file shop\.py -->\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
"""The README's application of a user."""

CLIENT = """
from shop import weft
order = weft.start("order", id="order-1", input={"amount": 20})
weft.signal("order-1", "shipped", "parcel 77")
print(order.result(timeout=60))
"""
TYPED = """
from weft_tasks import SignalReceipt, Turn, TurnEnd, Weft, WorkflowHandle

def order(turn: Turn) -> TurnEnd | None:
    turn.wait("paid")
    return None

def use(weft: Weft) -> tuple[WorkflowHandle, SignalReceipt]:
    weft.workflow("order")(order)
    return weft.start("order", id="order-1"), weft.signal("order-1", "paid")
"""
WRONG = """
from weft_tasks import Weft

def use(weft: Weft) -> int:
    return weft.signal("order-1", "paid")
"""


class Installed:
    """An environment with the wheel and what it requires, and an empty folder to work in."""

    def __init__(self, environment: Path, folder: Path, redis: LocalRedis) -> None:
        self.bin, self.folder = environment / "bin", folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CELERY_"))}
        self.env |= {"BROKER_URL": redis.url(), "DATABASE_URL": f"sqlite:///{folder / 'weft.sqlite3'}"}

    def run(self, program: str, *words: str) -> str:
        """What the program prints. Fails with it if the exit status is not 0."""
        ran = subprocess.run(
            [str(self.bin / program), *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_COMMAND_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout
        return ran.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    checkout = copy_checkout(tmp_path_factory.mktemp("checkout"))
    built = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(checkout)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_COMMAND_S,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    environment, (wheel,) = tmp_path_factory.mktemp("environment"), dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    with LocalRedis() as redis:
        installed = Installed(environment, tmp_path_factory.mktemp("project"), redis)
        installed.run("pip", "install", "--quiet", str(wheel))
        assert SHOP is not None
        shop = SHOP[1].replace("redis://127.0.0.1:6379/0", redis.url())
        (installed.folder / "shop.py").write_text(shop, encoding="utf-8")
        yield installed


def test_the_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"weft_tasks"}
    assert {"weft_tasks/py.typed", "weft_tasks/store/migrations/script.py.mako"} <= set(names)
    # A top-level celeryconfig would become the configuration of every application that has none.
    assert not any(Path(name).name == "celeryconfig.py" for name in names)


def test_the_sdist_holds_the_package_its_metadata_and_the_licence(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = {str(path.relative_to(ROOT)) for path in (ROOT / "weft_tasks").rglob("*.py")}
    assert tracked | {"pyproject.toml", "README.md", "LICENSE", "weft_tasks/py.typed"} <= names


def test_it_imports_and_has_the_version_of_its_metadata(installed: Installed) -> None:
    code = (
        "import weft_tasks; from importlib.metadata import version; print(weft_tasks.__file__, version('weft-tasks'))"
    )
    file, version = installed.run("python", "-c", code).split()
    assert Path(file).is_relative_to(installed.bin.parent)
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()


def test_the_suite_alone_works_without_a_celeryconfig(installed: Installed) -> None:
    report = installed.run("celery", "-A", "weft_tasks", "report")
    assert "worker_prefetch_multiplier: 1" in report
    assert installed.run("celery", "-A", "weft_tasks", "weft", "migrate").startswith("sqlite:///")


def test_a_celeryconfig_in_the_working_directory_goes_before_the_packages_own(installed: Installed) -> None:
    config = installed.folder / "celeryconfig.py"
    config.write_text("worker_prefetch_multiplier = 7\n")
    try:
        assert "worker_prefetch_multiplier: 7" in installed.run("celery", "-A", "weft_tasks", "report")
    finally:
        config.unlink()


def test_an_application_without_a_configuration_keeps_celerys_defaults(installed: Installed) -> None:
    code = "from celery import Celery; print(Celery('theirs').conf.worker_prefetch_multiplier)"
    assert installed.run("python", "-W", "ignore", "-c", code).split() == ["4"]


def test_a_users_application_migrates_and_runs_a_workflow(installed: Installed) -> None:
    assert "is at revision" in installed.run("celery", "-A", "shop", "weft", "migrate")
    worker = LocalProcess(
        [
            str(installed.bin / "celery"),
            "-A",
            "shop",
            "worker",
            "--loglevel",
            "INFO",
            "-c",
            "2",
            "-n",
            "engine-1@local",
        ],
        name="worker",
        log_path=installed.folder / "worker.log",
        env={**installed.env, "PYTHONPATH": ""},
        cwd=installed.folder,
        ready_line="ready.",
    )
    with worker.start():
        worker.wait_until_ready(READY)
        assert "parcel 77" in installed.run("python", "-c", CLIENT)
        assert "engine-1@local" in installed.run("celery", "-A", "shop", "weft", "status")


def test_a_type_checker_sees_the_types(installed: Installed) -> None:
    for name, code in (("typed.py", TYPED), ("wrong.py", WRONG)):
        (installed.folder / name).write_text(code, encoding="utf-8")
    assert mypy(installed, "typed.py") == "Success: no issues found in 1 source file\n"
    assert 'Incompatible return value type (got "SignalReceipt", expected "int")' in mypy(installed, "wrong.py")


def mypy(installed: Installed, file: str) -> str:
    """The type checker of the tests over a user's file, with the environment in which the wheel is."""
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed.bin / "python"), file]
    ran = subprocess.run(
        command, cwd=installed.folder, env=installed.env, stdout=subprocess.PIPE, text=True, check=False
    )
    return ran.stdout
