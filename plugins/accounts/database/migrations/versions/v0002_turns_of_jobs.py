"""When each owner of jobs had a turn last. The first release takes jobs by age alone, and needs none of this."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table of turns."""
    op.create_table(
        "tutti_job_turns",
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("step", sa.String, primary_key=True),
        sa.Column("taken", sa.Float, nullable=False),
    )
