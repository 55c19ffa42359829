"""Writes the table of settings in `docs/settings.md`, with those of plug-ins: `python -m tests.settings_table`."""

from pathlib import Path

from tutti_server.app.cli.commands import choices
from tutti_server.app.server.plugins import plugin_settings
from tutti_server.app.service.settings import ENV_PREFIX, own_settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = "| variable | default | meaning |\n|---|---|---|\n"


def table() -> str:
    """A row for each setting: its variable, its default, its values and the sentence that `--help` shows."""
    rows = []
    for setting in (*own_settings(), *plugin_settings()):
        values = ", ".join(f"`{value}`" for value in choices(setting))
        default = f"`{setting.default}`" if setting.default != "" else ""
        meaning = setting.metadata["help"] + (f" One of {values}." if values else "")
        rows.append(f"| `{ENV_PREFIX}{setting.name.upper()}` | {default} | {meaning} |\n")
    return HEAD + "".join(rows)


def page_with(rows: str, text: str) -> str:
    """The page's text with these rows in place of its table of settings.

    Raises:
        ValueError: the page has no such table.
    """
    before, head, after = text.partition(HEAD)
    if not head:
        raise ValueError(f"{PAGE}: expected a table with the columns variable, default and meaning")
    _, blank, rest = after.partition("\n\n")
    return before + rows + blank[1:] + rest


if __name__ == "__main__":
    PAGE.write_text(page_with(table(), PAGE.read_text()))
