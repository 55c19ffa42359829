"""The checkpoint of the tests, which is small and quick. Tests name it; none relies on the default of the settings.

Its README says what it understands. It is named by its folder, so all that is known of it stands in its files.
"""

from pathlib import Path
from typing import Any

from tutti_server.app.server.plugins import make_settings
from tutti_server.app.service.settings import ENV_PREFIX, Settings

SMALL_MODEL = str(Path(__file__).parent / "assets" / "small-model")
"""The value of `EngineConfig.model` and of the setting `model`."""
SMALL_MODEL_NAME = "small-model"
"""The name that clients see: that of the folder."""
N_BEAMS = 1
"""The beams of final text. A CPU would use more, which takes longer and gives the small model no better text."""
SETTINGS: dict[str, Any] = {"model": SMALL_MODEL, "beam_size": N_BEAMS}
"""The settings of a service with the small model."""
VARIABLES = {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in SETTINGS.items()}
"""The same as the environment of commands."""
ARGUMENTS = tuple(f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items())
"""The same as arguments of `tutti serve`."""


def small_settings(**values: Any) -> Settings:
    """The settings of a service with the small model, at a free port."""
    return make_settings(SETTINGS | {"port": 0} | values)
