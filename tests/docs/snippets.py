"""The code blocks of the pages, and what can be made sure of each without or with running it.

- A `python` or `yaml` block that begins with "# name.py" is that file, for the commands after it.
- A block below `<!-- snippets: run -->` is run as it stands, in the folder with the page's files;
  "# exit code 3" behind a command is how it must end.
- A block below `<!-- snippets: no, because … -->` is only shown.
- Every other one is checked: Python compiles and calls ours as they are, YAML fits the experiment
  file, commands have the options that they are given.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import typer

import stabexp
from stabexp import cli

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"(?:<!-- snippets: (?P<mark>[^\n]*?) -->\n+)?"
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<kind>\w[\w-]*)?[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)
NAMED = re.compile(r"# ([\w./-]+\.(?:py|yaml|yml|sh|sbatch))\n")
OTHERS_COMMANDS = {
    "pip", "pytest", "git", "cd", "mkdir", "export", "unset", "source", "exit", "set", "sbatch",
    "srun", "squeue", "scancel", "scontrol", "docker", "curl", "jq", "cat", "echo", "printf",
    "open", "promtool", "prometheus", "grafana-cli", "python", "tail", "head", "kill", "test",
    "mlflow", "sphinx-build", "cp", "mv", "ls", "sleep", "mail", "sendmail", "ssh", "scp",
    "rsync", "[", "true", "false", "trap", "wait", "read",
}  # fmt: skip
"""Commands that are not ours; nothing is said about their options."""


KEYWORDS = {"if", "then", "elif", "else", "fi", "do", "done", "while", "!", "{", "}", "until"}
"""Words of the shell with a command behind them."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    kind: str
    text: str
    mark: str

    @property
    def name(self) -> str:
        """The file it is, "" for none."""
        found = NAMED.match(self.text)
        return found[1] if found and self.kind in {"python", "yaml", "sh"} else ""

    @property
    def is_run(self) -> bool:
        return self.mark == "run"

    @property
    def is_left_out(self) -> bool:
        return self.mark.startswith("no, ")

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return README.md and every page of docs/, as paths from the repository's root."""
    found = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    return ["README.md", *sorted(found)]


def blocks(page: str) -> list[Block]:
    """Return a page's blocks in order."""
    text = (ROOT / page).read_text("utf-8")
    found = []
    for each in FENCE.finditer(text):
        line = text.count("\n", 0, each.start("ticks")) + 1
        body = re.sub(rf"^{each['indent']}", "", each["text"], flags=re.MULTILINE)
        found.append(Block(page, line, each["kind"] or "", body, each["mark"] or ""))
    return found


def files(page: str) -> dict[str, str]:
    """Return the files that a page's blocks are, the last one of a name."""
    return {block.name: block.text.partition("\n")[2] for block in blocks(page) if block.name}


def check(block: Block) -> None:
    """Make sure of what can be known without running a block.

    Raises:
        AssertionError: Naming its page and line.
    """
    match block.kind:
        case "python":
            check_python(block)
        case "sh" | "bash" | "shell":
            for command in commands(block.text):
                check_command(command.words, str(block))
        case "console":
            typed = [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
            for command in commands("\n".join(typed)):
                check_command(command.words, str(block))
        case "json":
            json.loads(block.text, parse_constant=_not_json)
        case "yaml" | "text" | "toml" | "ini" | "promql" | "diff" | "markdown" | "":
            pass  # YAML is checked with the files around it
        case other:
            raise AssertionError(f"{block}: nobody knows what is true of a block of {other!r}")


def _not_json(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def check_python(block: Block) -> None:
    """Check that a block compiles and gives our functions arguments that they have."""
    try:
        tree = ast.parse(block.text)
    except SyntaxError as error:
        raise AssertionError(f"{block}: {error}") from error
    for node in sorted(ast.walk(tree), key=lambda node: isinstance(node, ast.Call)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stabexp"):
            for alias in node.names:
                there = _defines(str(node.module), alias.name)
                assert there, f"{block}: no {alias.name} in {node.module}"
        if _is_ours(node):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            known = hasattr(stabexp, name)
            assert known, f"{block}: stabexp has no {name}"
        if isinstance(node, ast.Call) and _is_ours(node.func):
            given = {word.arg: None for word in node.keywords if word.arg}
            if any(word.arg is None for word in node.keywords):
                continue
            function = getattr(stabexp, node.func.attr)
            if inspect.isfunction(function):
                try:
                    inspect.signature(function).bind_partial(*node.args, **given)
                except TypeError as error:
                    raise AssertionError(f"{block}: stabexp.{node.func.attr}: {error}") from error


def _defines(module: str, name: str) -> bool:
    """Say whether a module of ours has a name, without loading what the module needs."""
    if module == "stabexp":
        return hasattr(stabexp, name)
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.exists():
        return False
    found: set[str] = {each.stem for each in path.glob("*.py")} if path.is_dir() else set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return name in found


def _is_ours(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "stabexp"
    )


@dataclass(frozen=True)
class Command:
    """One command of a shell block."""

    words: tuple[str, ...]
    environment: dict[str, str]
    code: int | None
    """The exit code that the text says it has; None where it says nothing."""


def commands(text: str) -> list[Command]:
    """Return the commands of a shell block; those in a pipe or behind && are commands too."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        code = re.search(r"#.*?exit code (\d+)", line)
        words = _split(stripped)
        environment: dict[str, str] = {}
        part: list[str] = []
        for word in [*words, ";"]:
            if set(word) <= set("|&;()"):
                if part:
                    found.append(Command(tuple(part), environment, int(code[1]) if code else None))
                part, environment = [], {}
            elif not part and re.fullmatch(r"[A-Za-z_]\w*=.*", word, re.DOTALL):
                name, _, value = word.partition("=")
                environment[name] = value
            elif part or word not in KEYWORDS:
                part.append(word)
    return found


def _split(line: str) -> list[str]:
    """Return the words of a line without its comment and without where output goes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    kept: list[str] = []
    skip = False
    for word in lexer:
        if skip:
            skip = word in {"(", "&"}  # >(command), >&2
        elif set(word) & set("<>") and set(word) <= set("<>&("):
            skip = True
            if kept and kept[-1] in {"1", "2"}:
                kept.pop()
        else:
            kept.append(word)
    return kept


def check_command(words: tuple[str, ...], place: str) -> None:
    """Check that a command of ours exists and has the options that it is given."""
    program, *arguments = words
    if program == "stabexp":
        group = typer.main.get_command(cli.app)
        if not arguments or arguments[0].startswith("-"):
            return
        name, *rest = arguments
        command = group.commands.get(name)
        assert command is not None, f"{place}: there is no command stabexp {name}"
        try:
            command.make_context(name, rest)
        except Exception as error:
            if type(error).__name__ == "Exit":  # it asks for --help
                return
            raise AssertionError(f"{place}: {shlex.join(words)}: {error}") from error
    elif program.startswith("python") and arguments[:1] == ["-m"]:
        module = arguments[1]
        if module.startswith("experiments"):
            path = ROOT.joinpath(*module.split("."))
            there = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
            assert there, f"{place}: there is no module {module}"
            sources = path.glob("*.py") if path.is_dir() else [path.with_suffix(".py")]
            code = "".join(file.read_text("utf-8") for file in sources)
            for option in (word for word in arguments[2:] if word.startswith("--")):
                assert f'"{option.partition("=")[0]}"' in code, f"{place}: {module} has no {option}"
    else:
        known = program in OTHERS_COMMANDS or "/" in program
        assert known, f"{place}: a command {program!r}; is it one?"
