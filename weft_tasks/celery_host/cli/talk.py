"""`start`, `signal` and `update`: the verbs that hand a workflow something."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from weft_tasks.celery_host.cli.parameters import DURATION, json_from, payload_of, payload_parameters
from weft_tasks.celery_host.cli.suite import Failure, with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output
    from weft_tasks.handles import WorkflowHandle
    from weft_tasks.weft import Weft

CONFLICTS = ("error", "use-existing", "restart-if-ended")
DEFAULT_WAIT = timedelta(seconds=30)


@click.command()
@click.argument("type_name", metavar="TYPE")
@click.argument("id", required=False)
@click.option("--input", "input_json", metavar="JSON", help="The workflow's input. @FILE reads a file, - stdin.")
@click.option(
    "--on-conflict",
    type=click.Choice(CONFLICTS),
    default="error",
    show_default=True,
    help="What becomes of an ID that is taken.",
)
@click.option("--delay", type=DURATION, metavar="DURATION", help="Put off its first turn, such as 10m.")
@click.option("--at", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z"]), help="Put it off until a time with its zone.")
@click.option("--timeout", type=DURATION, metavar="DURATION", help="End it as timed out after this time, such as 3d.")
@click.option("--wait", type=DURATION, metavar="DURATION", help="Wait so long for its result, and print that.")
@with_suite
def start(
    suite: Weft,
    output: Output,
    type_name: str,
    id: str | None,
    input_json: str | None,
    on_conflict: str,
    delay: timedelta | None,
    at: datetime | None,
    timeout: timedelta | None,
    wait: timedelta | None,
) -> None:
    """Start a workflow of a registered TYPE, under an ID of your own or a random one.

    \b
    celery -A APP weft start order order-1 --input '{"amount": 20}'
    celery -A APP weft start report --input @report.json --timeout 2h --wait 1m
    """
    handle = suite.start(
        type_name,
        id,
        json_from("--input", input_json),
        on_conflict=on_conflict,
        delay=delay,
        at=at,
        timeout=timeout,
    )
    if wait is None:
        output.show({"id": handle.id, "run_id": handle.run_id}, f"started {handle.id} (run {handle.run_id})")
    else:
        _show_result(output, handle, wait)


def _show_result(output: Output, handle: WorkflowHandle, wait: timedelta) -> None:
    from weft_tasks.celery_host.cli.printable import printable_json
    from weft_tasks.errors import WorkflowNotCompleted
    from weft_tasks.results import reason_in

    try:
        result = handle.result(wait)
    except WorkflowNotCompleted as ended:
        why = f": {reason_in(ended.error)}" if isinstance(ended.error, dict) else ""
        raise Failure(f"workflow {handle.id!r} ended as {ended.status}{why}") from None
    output.show({"id": handle.id, "run_id": handle.run_id, "result": result}, printable_json(result))


@click.command()
@click.argument("id")
@click.argument("name")
@payload_parameters
@click.option("--key", help="The same key again is the same signal: sending twice has no further effect.")
@with_suite
def signal(
    suite: Weft, output: Output, id: str, name: str, payload: str | None, text: str | None, key: str | None
) -> None:
    """Send the signal NAME to the workflow ID, with a PAYLOAD in JSON (or @FILE, or - for stdin).

    It is durable when the command returns, and consumed by exactly one turn.

    \b
    celery -A APP weft signal order-1 paid '{"receipt": 7}'
    celery -A APP weft signal order-1 shipped --text 'parcel 77'
    """
    receipt = suite.signal(id, name, payload_of(payload, text), key=key)
    document = {
        "id": receipt.workflow_id,
        "run_id": receipt.run_id,
        "number": receipt.number,
        "duplicate": receipt.is_duplicate,
    }
    words = "was sent before" if receipt.is_duplicate else "is sent"
    output.show(document, f"signal {receipt.number} {words} to {receipt.workflow_id}")


@click.command()
@click.argument("id")
@click.argument("name")
@payload_parameters
@click.option("--key", help="The same key again is the same update, and gets the same answer.")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    default=DEFAULT_WAIT,
    show_default="30s",
    help="How long to wait for the answer.",
)
@with_suite
def update(
    suite: Weft,
    output: Output,
    id: str,
    name: str,
    payload: str | None,
    text: str | None,
    key: str | None,
    timeout: timedelta,
) -> None:
    """Ask the workflow ID to handle the update NAME, wait, and print its answer in JSON.

    Exit status 1 if it is refused, if it fails, or if there is no answer in time; then it still stands, and asking
    again under the same --key gets its answer.

    \b
    celery -A APP weft update order-1 change-address '{"city": "Berlin"}' --timeout 10s
    """
    from weft_tasks.celery_host.cli.printable import printable_json
    from weft_tasks.errors import ResultTimeout

    handle = suite.update(id, name, payload_of(payload, text), key=key)
    try:
        answer = handle.result(timeout)
    except ResultTimeout as error:
        raise Failure(f"{error}; it stands: ask again with --key {handle.receipt.key}") from None
    document = {"id": id, "name": name, "key": handle.receipt.key, "answer": answer}
    output.show(document, printable_json(answer))
