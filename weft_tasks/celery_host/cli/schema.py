"""`migrate`: the schema of the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from weft_tasks.celery_host.cli.suite import with_suite

if TYPE_CHECKING:
    from weft_tasks.celery_host.cli.output import Output
    from weft_tasks.weft import Weft


@click.command()
@click.argument("revision", default="head")
@click.option("--yes", is_flag=True, help="Do not ask before going back to an older revision.")
@with_suite
def migrate(suite: Weft, output: Output, revision: str, yes: bool) -> None:
    """Create the schema in the database of `weft_database_url`, or bring it to a REVISION.

    Without REVISION up to that of this release, which is what every deployment does before its new workers start; it is
    safe from several machines at once. An older REVISION goes back to it, for a release that is rolled back; `base`
    removes the tables, and all workflows with them. Going back asks first.
    """
    from weft_tasks.store import schema

    database = suite.store.database
    before = schema.current_revision(database)
    if schema.goes_back(database, revision) and not yes:
        what = "This deletes every workflow." if revision == "base" else "What only the newer schema can keep is lost."
        if not sys.stdin.isatty():
            raise click.UsageError(f"going back from revision {before} to {revision} needs --yes. {what}")
        click.confirm(f"Go back from revision {before} to {revision}? {what}", abort=True, err=True)
    schema.migrate(database, revision)
    after = schema.current_revision(database)
    words = "has no schema any more" if after is None else f"is at revision {after}"
    document = {"database": database.shown_url, "before": before, "revision": after}
    output.show(document, f"{database.shown_url} {words}")
