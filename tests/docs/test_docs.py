"""The blocks of README.md and the guides, executed: what a reader copies has run.

A comment before a fenced block, invisible when rendered, says what becomes of it:

    <!-- run -->                run it: sh with bash, python with exec, pycon as a doctest
    <!-- run: file NAME -->     write it to NAME, behind what is there; files are written before anything runs
    <!-- run: until "TEXT" -->  start it, wait until its log has TEXT, leave it running to the end of the page
    <!-- run by FILE -->        that test takes it from the page and runs it
    <!-- not run: REASON -->    do nothing, for a reason

Blocks of a page run in their order, in one folder, as in one terminal and one Python shell. Addresses are replaced by
those of servers of the test, and the reader's checkout by a copy of this one. While you write:
`python tests/docs/test_docs.py README.md` runs one page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from weft_tasks.testing.local_redis import LocalRedis
from weft_tasks.testing.ports import free_port
from weft_tasks.testing.processes import LocalProcess, tail

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/workflows.md",
    "docs/activities.md",
    "docs/transactions.md",
    "docs/testing.md",
    "docs/cli.md",
    "docs/operating.md",
)
ALL_PAGES = tuple(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
LANGUAGES = ("sh", "python", "pycon", "sql")
REDIS, FLOWER_PORT, CHECKOUT = "redis://127.0.0.1:6379", "5555", "~/weft_tasks"
"""What the pages say, and the test replaces."""
PACKAGE = ("weft_tasks", "pyproject.toml", "README.md", "LICENSE")
PYTHON_SHELL = Path(__file__).with_name("python_shell.py")
LONGEST_COMMAND_S = 150
LONGEST_PAGE_S = 300
"""For a machine with two cores that is busy with other things; a page takes about twenty seconds on an idle one."""

_BLOCK = re.compile(
    r"(?:^<!--\s*(?P<mark>(?:not )?run.*?)\s*-->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block with its comment."""

    where: str
    language: str
    mark: str | None
    text: str

    @property
    def file(self) -> str | None:
        return self._argument(r"run: file (\S+)")

    @property
    def until(self) -> str | None:
        return self._argument(r'run: until "(.+)"')

    @property
    def by(self) -> str | None:
        return self._argument(r"run by (\S+)")

    @property
    def reason(self) -> str | None:
        return self._argument(r"not run: (.+)")

    def _argument(self, pattern: str) -> str | None:
        found = re.fullmatch(pattern, self.mark or "")
        return found.group(1) if found else None


def blocks_of(page: str) -> Iterator[Block]:
    """The blocks of a page that are in a language we run."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        if found["language"] in LANGUAGES:
            line = text.count("\n", 0, found.start("language")) + 1
            yield Block(where=f"{page}:{line}", language=found["language"], mark=found["mark"], text=found["text"])


# -- the tests


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_block_says_whether_it_is_run(page: str) -> None:
    unclear = [
        block.where
        for block in blocks_of(page)
        if not (block.mark == "run" or block.file or block.until or block.by or block.reason)
    ]
    assert not unclear


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_test_that_runs_a_block_takes_it_from_the_page(page: str) -> None:
    for test in {block.by for block in blocks_of(page) if block.by}:
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_make_target_of_a_page_exists(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^make ([a-z-]+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert [target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("page", ALL_PAGES)
def test_the_code_that_a_page_names_is_where_it_says(page: str) -> None:
    """Such as: `store/claims.py`: `take_over`, `_grant`."""
    named = re.findall(r"`([\w/]+\.py)`:((?:,?\s`\w+`)+)", (ROOT / page).read_text(encoding="utf-8"))
    missing = [
        f"{file}: {name}"
        for file, names in named
        for name in re.findall(r"\w+", names)
        if not re.search(rf"(def|class) {name}\b|\"{name}\"", (ROOT / "weft_tasks" / file).read_text(encoding="utf-8"))
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    """In a process of its own: the page has its own applications, and its workers end with that process."""
    ran = subprocess.run(
        [sys.executable, __file__, page, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_PAGE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


# -- running a page


class PageError(Exception):
    """A block did not do what the page says."""


class Page:
    """One terminal and one Python shell, in a folder."""

    def __init__(self, folder: Path, replaced: Mapping[str, str], resources: ExitStack) -> None:
        self._folder, self._replaced, self._resources = folder, replaced, resources
        paths = (str(Path(sys.executable).parent), os.environ["PATH"])
        self._environment = {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        self._python: subprocess.Popen[str] | None = None
        self._processes: list[LocalProcess] = []

    def run(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block.file:
                with (self._folder / block.file).open("a", encoding="utf-8") as file:
                    file.write(self._text(block) + "\n\n")
        for block in blocks:
            if block.until:
                self._start(block, block.until)
            elif block.mark == "run" and block.language == "sh":
                self._run_sh(block)
            elif block.mark == "run":
                self._run_python(block)

    def logs(self) -> str:
        return "\n".join(f"-- {process.name}\n{tail(process.log_text())}" for process in self._processes)

    def _start(self, block: Block, text: str) -> None:
        name = f"process-{len(self._processes)}"
        process = LocalProcess(
            ["bash", "-c", f"exec {self._text(block)}"],
            name=f"{name} ({block.where})",
            log_path=self._folder / f"{name}.log",
            env=self._environment,
            cwd=self._folder,
        )
        self._processes.append(process)
        self._resources.callback(process.kill)
        process.start().wait_for_log(text, timedelta(seconds=LONGEST_COMMAND_S))

    def _run_sh(self, block: Block) -> None:
        """What the block exports is there for the blocks after it."""
        kept = self._folder / ".environment"
        ran = subprocess.run(
            ["bash", "-euc", f"{self._text(block)}\nenv -0 > {kept}"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            timeout=LONGEST_COMMAND_S,
            check=False,
        )
        if ran.returncode:
            raise PageError(f"{block.where}: exit status {ran.returncode}")
        self._environment = dict(line.split("=", 1) for line in kept.read_text().split("\0") if "=" in line)

    def _run_python(self, block: Block) -> None:
        if self._python is None:
            self._python = self._started_python()
        asked = {"where": block.where, "text": self._text(block), "session": block.language == "pycon"}
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(asked) + "\n")
        self._python.stdin.flush()
        answer = json.loads(self._python.stdout.readline())
        if not answer["went_well"]:
            raise PageError(f"{block.where} went another way:\n{answer['printed']}")

    def _started_python(self) -> subprocess.Popen[str]:
        """The shell, from the first block that needs it on: with what the page has installed and exported by then."""
        python = subprocess.Popen(
            ["python", str(PYTHON_SHELL)],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._resources.callback(python.wait)
        self._resources.callback(python.kill)
        return python

    def _text(self, block: Block) -> str:
        text = block.text
        for ours, theirs in self._replaced.items():
            text = text.replace(ours, theirs)
        return text


def run_page(page: str, folder: Path) -> None:
    """Run the blocks of a page in `folder`, beside the shipped celeryconfig.py if it has none of its own. Raises what
    goes wrong."""
    blocks = list(blocks_of(page))
    if not any(block.file == "celeryconfig.py" for block in blocks):
        shutil.copy(ROOT / "celeryconfig.py", folder)
    with ExitStack() as resources:
        redis = resources.enter_context(LocalRedis())
        checkout = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        if any(CHECKOUT in block.text for block in blocks):
            _copy_package(checkout)
        replaced = {REDIS: redis.url().rpartition("/")[0], FLOWER_PORT: str(free_port()), CHECKOUT: str(checkout)}
        running = Page(folder, replaced, resources)
        try:
            running.run(blocks)
        except BaseException:
            sys.stdout.write(running.logs())
            raise


def _copy_package(folder: Path) -> None:
    """What pip builds a wheel from. It writes into the folder, which must not be this one."""
    for name in PACKAGE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run_page(sys.argv[1], Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            run_page(sys.argv[1], Path(scratch))
