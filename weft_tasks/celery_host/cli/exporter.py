"""`exporter`."""

from __future__ import annotations

import logging
import signal
import threading

import click

from weft_tasks.celery_host.cli.suite import suite_of

LOG_FORMAT = "[%(asctime)s: %(levelname)s/%(processName)s] %(message)s"
"""Celery's own."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 is all.")
@click.option("--port", default=9808, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.pass_context
def exporter(context: click.Context, host: str, port: int) -> None:
    """Serve the metrics of the whole fleet to Prometheus, until it is told to stop.

    One process shows what all workers counted; two show the same. It reads the database alone, and only when it is
    scraped. While the database does not answer, it shows `weft_up 0`. It answers anybody who reaches it.
    """
    from weft_tasks.errors import WeftError

    with suite_of(context) as suite:
        try:
            from prometheus_client import CollectorRegistry, start_http_server

            from weft_tasks.metrics.collector import WeftCollector
        except ModuleNotFoundError as error:
            raise WeftError(f"the exporter needs {error.name}: pip install 'weft-tasks[metrics]'") from None
        logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
        registry = CollectorRegistry()
        registry.register(WeftCollector(suite))
        try:
            server, thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise WeftError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
        click.echo(f"metrics of {suite.store.database.shown_url} on http://{host}:{server.server_port}/metrics")
        _wait_to_be_stopped()
        server.shutdown()
        server.server_close()
        thread.join()


def _wait_to_be_stopped() -> None:
    """Until SIGTERM or Ctrl-C."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_signal: stopped.set())
    stopped.wait()
