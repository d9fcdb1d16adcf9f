"""Flower's tasks page, as a person sees it: in a real headless Chromium, by what it renders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

BROWSERS, DRIVERS = ("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)
WINDOW = "1800,1000"


@dataclass(frozen=True, slots=True)
class Row:
    """The columns that flowerconfig.py names."""

    name: str
    args: str
    kwargs: str
    result: str
    state: str
    received: str
    runtime: str
    worker: str
    uuid: str


class TasksPage:
    """An open tasks page."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self._browser, self._url = browser, f"{url}/tasks"

    def load(self) -> Self:
        """Load it anew, as somebody does who wants to see what is new."""
        self._browser.get(self._url)
        return self

    @property
    def headings(self) -> list[str]:
        cells = self._browser.find_elements(By.CSS_SELECTOR, ".dataTables_scrollHead th")
        return [cell.text for cell in cells]

    @property
    def rows(self) -> list[Row]:
        """The rows in view. A cell's text is what is rendered of it."""
        return [Row(*cells) for cells in self._browser.execute_script(_CELLS) if len(cells) == len(Row.__slots__)]

    def show(self, count: int) -> None:
        """Choose how many rows are in view."""
        Select(self._in_view("#tasks-table_length select")).select_by_value(str(count))

    def filter(self, state: str) -> None:
        """Click a button above the table."""
        self._in_view(f'.task-state-filter[data-task-state="{state}"]').click()

    def save(self, path: Path) -> None:
        """A picture of the window, from the top of the page."""
        self._browser.execute_script("window.scrollTo({top: 0, behavior: 'instant'})")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._browser.save_screenshot(str(path))

    def _in_view(self, selector: str) -> WebElement:
        """Scroll there, as a person does: the bar at the top covers what is only just in the window."""
        element = self._browser.find_element(By.CSS_SELECTOR, selector)
        self._browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        return element


_CELLS = """
return [...document.querySelectorAll('#tasks-table tbody tr')].map(row => [...row.cells].map(cell => cell.innerText));
"""


def missing_program() -> str | None:
    """What is not installed, if anything: Debian has both in `chromium` and `chromium-driver`."""
    for names in (BROWSERS, DRIVERS):
        if not any(map(shutil.which, names)):
            return names[0]
    return None


@contextmanager
def tasks_page(url: str) -> Iterator[TasksPage]:
    """The tasks page of the Flower at `url`, in a browser that is closed at the end."""
    options = ChromeOptions()
    options.binary_location = _program(BROWSERS)
    # The sandbox refuses to run for root; /dev/shm is small in a container.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={WINDOW}"):
        options.add_argument(argument)
    browser = Chrome(options=options, service=Service(_program(DRIVERS)))
    try:
        yield TasksPage(browser, url)
    finally:
        browser.quit()


def _program(names: tuple[str, ...]) -> str:
    return next(filter(None, map(shutil.which, names)))
