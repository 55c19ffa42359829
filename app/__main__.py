"""`python -m tutti_server.app` and the script `tutti` run the command line."""

from tutti_server.app.cli.interrupts import exit_at_interrupt


def main() -> None:
    """Run the command line. Ctrl-C is handled before its imports, which take a moment."""
    exit_at_interrupt()
    from tutti_server.app.cli.commands import main as run_commands

    run_commands()


if __name__ == "__main__":
    main()
