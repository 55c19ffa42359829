"""The settings of text rules."""

from tutti_server.app.errors import SettingsError
from tutti_server.app.text_rules.redaction import KINDS, Kind


def redacted_kinds(names: str) -> tuple[Kind, ...]:
    """The kinds in the setting `redact`, which are separated by commas.

    Raises:
        SettingsError: one of them is none.
    """
    wanted = [name for each in names.lower().split(",") if (name := each.strip())]
    for name in wanted:
        if name not in KINDS:
            raise SettingsError(f"redact: expected some of {', '.join(KINDS)}, got {name!r}")
    return tuple(kind for kind in KINDS if kind in wanted)
