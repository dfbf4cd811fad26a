"""`python -m app.dashboard run/ --port 8501`: the dashboard without the rest of the command line."""

import argparse
import sys

from app.dashboard import serve


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted. Exit 3 with one sentence when the run cannot be shown."""
    parser = argparse.ArgumentParser(prog="python -m app.dashboard", description="Look at the maps of a run.")
    parser.add_argument("run", help="run folder, as `geogp fit` writes it")
    parser.add_argument("--port", type=int, default=8501, help="default 8501")
    parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1: this machine only")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    given = parser.parse_args(argv)
    try:
        serve(given.run, port=given.port, host=given.host, open_browser=given.open)
    except ValueError as error:
        if not hasattr(error, "exit_code"):
            raise
        print(f"geogp: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
