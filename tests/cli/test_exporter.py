"""`exporter`: what it says before it serves, and how it ends; what it serves is tested with a fleet."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import urllib.request
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from shop import Shop

from weft_tasks.celery_host.cli import weft as commands
from weft_tasks.testing.ports import free_port
from weft_tasks.testing.waiting import wait_until


def export(shop: Shop, *arguments: str) -> Result:
    return CliRunner().invoke(commands, ["exporter", *arguments], obj=SimpleNamespace(app=shop.weft.app))


def test_it_serves_until_sigterm_and_then_ends_well(shop: Shop) -> None:
    port, pages = free_port(), list[str]()

    def scrape_and_stop() -> None:
        def page() -> str:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    return str(answer.read().decode())
            except OSError:
                return ""

        pages.append(wait_until(page, what="the exporter to answer"))
        os.kill(os.getpid(), signal.SIGTERM)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    scraper = threading.Thread(target=scrape_and_stop)
    scraper.start()
    try:
        result = export(shop, "--port", str(port))
    finally:
        scraper.join()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(f" on http://127.0.0.1:{port}/metrics\n")
    assert 'weft_engines{state="alive"} 1.0' in pages[0]


def test_a_port_that_is_taken_is_one_line(shop: Shop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = export(shop, "--port", str(port))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_without_the_library_it_says_how_to_get_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    result = export(shop)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: the exporter needs prometheus_client: pip install 'weft-tasks[metrics]'\n"
