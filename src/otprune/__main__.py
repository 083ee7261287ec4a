"""``otprune`` and ``python -m otprune``: the command line, or how to get it where its packages are missing."""

import io
import os
import sys


def main() -> None:
    """Run the command line."""
    try:
        import rich  # noqa: F401  (the verbs need it, and are imported when one is called)

        from otprune.cli import app
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in {"typer", "rich"}:
            raise
        sys.exit(f"The command line needs {package}: pip install 'otprune[cli]'")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # not every terminal knows λ
    if os.environ.get("WORLD_SIZE", "1") == "1":
        app()
        return
    from otprune.cli.together import run_together  # it imports torch, which a quick answer does without

    run_together(app, sys.argv[1:])


if __name__ == "__main__":
    main()
