"""`migrate`."""

from __future__ import annotations

import click

from weft_tasks.celery_host.cli.suite import suite_of


@click.command()
@click.pass_context
def migrate(context: click.Context) -> None:
    """Create the schema in the database of `weft_database_url`, or bring it up to this release."""
    from weft_tasks.store.schema import current_revision

    with suite_of(context) as suite:
        suite.migrate()
        database = suite.store.database
        click.echo(f"{database.shown_url} is at revision {current_revision(database)}")
