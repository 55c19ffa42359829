"""`python -m app` is `tutti`."""

from app.cli.commands import main

if __name__ == "__main__":
    main()
