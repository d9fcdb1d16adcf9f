"""Alembic's entry: runs the migrations on the connection that `weft_tasks.store.schema` hands over."""

from alembic import context

from weft_tasks.store.schema import VERSION_TABLE
from weft_tasks.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
context.run_migrations()
