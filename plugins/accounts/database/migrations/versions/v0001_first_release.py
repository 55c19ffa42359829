"""The tables of the first release, which made them without Alembic.

What is there already stays: that release made only the tables of what was imported when it opened the database. Its own
table `tutti_schema` is left to it: it goes on with these tables as long as that says version 1, or is not there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make what is missing of the tables."""
    _make_keys()
    _make_usage()
    _make_jobs()


def _make_keys() -> None:
    op.create_table(
        "tutti_keys",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("hash", sa.String, nullable=False, unique=True),
        sa.Column("old_hash", sa.String),
        sa.Column("old_until", sa.Float),
        sa.Column("signing_key", sa.String, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("expires", sa.Float),
        sa.Column("withdrawn", sa.Float),
        sa.Column("scopes", sa.String, nullable=False),
        sa.Column("sessions", sa.Integer),
        sa.Column("minutes_per_day", sa.Float),
        sa.Column("minutes_per_month", sa.Float),
        sa.Column("jobs", sa.Integer),
        sa.Column("version", sa.Integer, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_tutti_keys_version", "tutti_keys", ["version"], if_not_exists=True)
    op.create_table(
        "tutti_keys_version",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        if_not_exists=True,
    )


def _make_usage() -> None:
    op.create_table(
        "tutti_usage",
        sa.Column("account", sa.String, primary_key=True),
        sa.Column("day", sa.Date, primary_key=True),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("audio_s", sa.Float, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "tutti_usage_sources",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("audio_s", sa.Float, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_tutti_usage_sources_day", "tutti_usage_sources", ["day"], if_not_exists=True)


def _make_jobs() -> None:
    op.create_table(
        "tutti_jobs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("account", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("options", sa.String, nullable=False),
        sa.Column("url", sa.String, nullable=False),
        sa.Column("callback_url", sa.String, nullable=False),
        sa.Column("callback_method", sa.String, nullable=False),
        sa.Column("idempotency_key", sa.String),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("ended", sa.Float),
        sa.Column("due", sa.Float),
        sa.Column("lease", sa.String),
        sa.Column("n_attempts", sa.Integer, nullable=False),
        sa.Column("audio_s", sa.Float),
        sa.Column("error_code", sa.String),
        sa.Column("error", sa.String),
        sa.Column("has_audio", sa.Boolean, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_tutti_jobs_ended", "tutti_jobs", ["ended"], if_not_exists=True)
    op.create_index("ix_tutti_jobs_due", "tutti_jobs", ["due"], if_not_exists=True)
    op.create_index("tutti_jobs_of_owner", "tutti_jobs", ["owner", "created"], if_not_exists=True)
    same_key = ["owner", "idempotency_key"]
    op.create_index("tutti_jobs_idempotency", "tutti_jobs", same_key, unique=True, if_not_exists=True)
    op.create_table(
        "tutti_job_results",
        _job(),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("media_type", sa.String, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "tutti_job_callbacks",
        _job(),
        sa.Column("due", sa.Float),
        sa.Column("n_attempts", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String),
        if_not_exists=True,
    )
    op.create_index("ix_tutti_job_callbacks_due", "tutti_job_callbacks", ["due"], if_not_exists=True)


def _job() -> "sa.Column[str]":
    """Names the job that a row belongs to, and is forgotten with."""
    return sa.Column("job", sa.String, sa.ForeignKey("tutti_jobs.id", ondelete="CASCADE"), primary_key=True)
