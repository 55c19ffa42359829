"""`python -m tutti_server.app` and the script `tutti` run the command line."""

from tutti_server.app.cli.interrupts import exit_at_interrupt
from tutti_server.app.cli.standard_streams import prepare_standard_streams


def main() -> None:
    """Run the command line. Ctrl-C is handled before its imports, which take a moment."""
    exit_at_interrupt()
    prepare_standard_streams()
    from tutti_server.app.cli.commands import main as run_commands

    run_commands()


if __name__ == "__main__":
    main()
