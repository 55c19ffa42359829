"""Which folder has the recordings of jobs. Releases before this one take every folder for theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table of the folder's mark, which has one row at most."""
    op.create_table(
        "tutti_job_folder",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("mark", sa.String, nullable=False),
    )
