"""`python -m app` runs the command line `tutti`."""

from app.cli.commands import main

if __name__ == "__main__":
    main()
