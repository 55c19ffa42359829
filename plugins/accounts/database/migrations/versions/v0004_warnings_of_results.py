"""The warnings of a job's result, for formats that have no place for them. Older results have none."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column, which gateways of an older release leave empty."""
    op.add_column("tutti_job_results", sa.Column("warnings", sa.String))
