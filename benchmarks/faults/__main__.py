"""The campaigns of faults, each with options of its own.

python -m benchmarks.faults service --cuts 1000 --process-faults 200 -- --threads 1
python -m benchmarks.faults engine --sessions 400 -- --engines 2 --gateways 8
python -m benchmarks.faults page --browser both --cuts 5,20,60 --runs 20 --restarts 20
python -m benchmarks.faults ray --kills 100 --sessions 16
python -m benchmarks.faults jobs --jobs 1000 --kills 50 --gateways 3
python -m benchmarks.faults cluster-demo
"""

import importlib

import click

from benchmarks.options import CONTEXT_SETTINGS

CAMPAIGNS = {
    "service": "service_faults",
    "engine": "engine_kill",
    "page": "page_faults",
    "ray": "ray_kills",
    "jobs": "job_kills",
    "cluster-demo": "cluster_demo",
}
"""The module of each campaign.

Only the module of the chosen campaign is imported: the others may need browsers, Ray or a database.
"""


class Campaigns(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(CAMPAIGNS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in CAMPAIGNS:
            return None
        command: click.Command = importlib.import_module(f"benchmarks.faults.{CAMPAIGNS[name]}").main
        return command


@click.group(cls=Campaigns, context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """Disturb a service while people speak, and compare every word with an undisturbed run."""


if __name__ == "__main__":
    main()
