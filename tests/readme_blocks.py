"""Run the code blocks of Markdown files: `python tests/readme_blocks.py README.md CONTRIBUTING.md`.

The Python blocks of a file run in order in one namespace and a temporary folder. Lines of console blocks that begin with
`geogp` are parsed by the real command line (so an option that does not exist fails) without being run;
`make` lines must name a target of the Makefile. What a line of text says may follow `geogp fit --set` must be a setting.
"""

import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SET = re.compile(r"`--set ([^`]+)`")


def check_command(words: list[str]) -> None:
    """Parse `geogp ...` as the installed command would, stopping before anything runs."""
    import typer

    from app.cli import app

    command = typer.main.get_command(app)
    name, *rest = words
    subcommands = command.commands  # type: ignore[attr-defined]  # that of a group, which `app` is
    if name not in subcommands:
        raise SystemExit(f"geogp has no command {name!r}")
    subcommands[name].make_context(name, rest)


def check_setting(said: str) -> None:
    """`NAME=VALUE` of `geogp fit --set` must name a setting; its value may be one that the reader is about to write."""
    from app.config import model_options, setting

    (word,) = shlex.split(said)
    name, _ = setting(word)
    if name not in model_options().model_fields:
        raise SystemExit(f"geogp fit --set knows no {name!r}")


def check_make(words: list[str], makefile: str) -> None:
    """Every word that is not VAR=value must be a target."""
    for word in words:
        if "=" not in word and not re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE):
            raise SystemExit(f"the Makefile has no target {word!r}")


def main(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = path.parent
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    namespace: dict = {"__name__": "readme"}
    ran = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for language, body in BLOCK.findall(text):
            if language == "python":
                print(f"{path.name}, python block:\n{body}", file=sys.stderr)
                exec(compile(body, str(path), "exec"), namespace)
                ran += 1
            elif language in ("bash", "sh", "console"):
                for line in body.replace("\\\n", " ").splitlines():
                    words = shlex.split(line, comments=True)
                    if words[:1] == ["geogp"]:
                        check_command(words[1:])
                    elif words[:1] == ["make"]:
                        check_make(words[1:], makefile)
                    ran += bool(words)
        os.chdir(root)
    for said in SET.findall(text):
        check_setting(said)
        ran += 1
    if not ran:
        raise SystemExit(f"{path} holds no code block; that cannot be right")
    print(f"{path.name}: {ran} blocks and commands hold", file=sys.stderr)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(Path(argument).resolve())
