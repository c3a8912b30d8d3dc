"""Pages that follow from the code: the reference of every public name, the table of methods, and the printed results.

python docs/generate.py DOCS
"""

import dataclasses
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
sys.path.insert(0, str(Path(__file__).parent))
from examples import EXAMPLES, NEEDS, SETUP
from fields import MEANINGS

import posteria as po
from posteria.methods import registry
from posteria.methods.shelf import SHELF

OPAQUE = re.compile(r"<factory>|<[^<>]+ at 0x[0-9a-f]+>")  # defaults that print as nothing


# functions and types that a module uses and does not offer
INSIDE = {
    "as_prior",
    "as_function_prior",
    "check_settings",
    "described",
    "factor_of",
    "from_json",
    "matern",
    "normal_of",
}
INSIDE |= {"numbers_of", "refuse_idle", "step_of", "to_json", "Infer", "NothingToInfer"}


def write(docs: Path, said: dict[str, str | None] | None = None) -> None:
    """All generated pages, below docs/reference and docs/results; `said` is what the examples said when they ran."""
    _said.clear()
    _said.update(said or {})
    reference = docs / "reference"
    reference.mkdir(exist_ok=True)
    methods = {home.partition(":")[2] for home in SHELF.values()}
    verbs = [name for name in po.__all__ if name not in methods and not inspect.ismodule(getattr(po, name))]
    pages = {
        "commands": _commands_page(),
        "methods": _methods_page(),
        "verbs": _page("Verbs and objects", "posteria", verbs, po),
    }
    for name in po.__all__:
        module = getattr(po, name)
        if inspect.ismodule(module) and name != "methods":  # which has a page of its own
            pages[name] = _page(f"posteria.{name}", f"posteria.{name}", public_names(module), module)
    for name, text in pages.items():
        (reference / f"{name}.md").write_text(text, encoding="utf-8")
    (reference / "index.md").write_text(_index(list(pages)), encoding="utf-8")
    (docs / "results.md").write_text(_results(docs), encoding="utf-8")
    (docs / "gallery.md").write_text(_gallery(docs), encoding="utf-8")


def public_names(module: Any) -> list[str]:
    """Of a module: what it says, else its own classes and functions."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    found = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return sorted(
        name
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and _is_of(module, value) and name not in INSIDE
    )


def every_name() -> list[str]:
    """All public names, as "posteria.priors.FanIn"."""
    found = [f"posteria.{name}" for name in po.__all__ if not inspect.ismodule(getattr(po, name))]
    modules = {name: getattr(po, name) for name in po.__all__ if inspect.ismodule(getattr(po, name))}
    return found + [f"posteria.{home}.{name}" for home, module in modules.items() for name in public_names(module)]


def _is_of(module: Any, value: Any) -> bool:
    """Of Posteria, and not an error, a setting or a posterior that the module merely uses."""
    elsewhere = {"posteria.errors", "posteria.settings", "posteria.posteriors.base"} - {module.__name__}
    return value.__module__.startswith("posteria") and value.__module__ not in elsewhere


def _index(pages: list[str]) -> str:
    listed = "\n".join(pages)
    return (
        "# Reference\n\nEvery public name: what it computes, its arguments, its paper, and an example that was run "
        f"when this was built. Each begins after this:\n\n```python\n{SETUP.strip()}\n```\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    )


def _commands_page() -> str:
    """Of the command line: each command, and what it may be told."""
    import typer

    from posteria.cli import app

    parts = ["# Command line\n", "`posteria COMMAND --help` says the same.\n"]
    for name, command in sorted(typer.main.get_command(app).commands.items()):
        given = [parameter for parameter in command.params if getattr(parameter, "help", None)]
        rows = [
            f"| `{', '.join(p.opts) if p.opts[0][0] == '-' else p.name.upper()}` | {_cell(p.help)} |" for p in given
        ]
        table = ["| | |", "| --- | --- |", *rows] if rows else []
        about = inspect.cleandoc(command.help or "").replace("\b\n", "")
        parts += [f"## {name}\n", about + "\n", *table, ""]
    return "\n".join(parts)


def _methods_page() -> str:
    rows = []
    for name in SHELF:  # an example may have registered one of its own
        method = registry.get(name)
        about = " ".join((inspect.getdoc(method) or "").split("\n\n")[0].split())
        paper = getattr(method, "paper", "")
        rows.append(f"| [`{name}`](#{method.__name__.lower()}) | {method.fidelity} | {_cell(about)} | {_cell(paper)} |")
    table = "\n".join(["| name | fidelity | what it is | paper |", "| --- | --- | --- | --- |", *rows])
    classes = [registry.get(name).__name__ for name in SHELF]
    laws = "The fidelity is what [the laws](../guides/own) hold it to."
    return (
        f"# Methods\n\n`posteria methods` prints the same list. {laws}\n\n"
        + table
        + "\n\n"
        + "\n".join(_entry(name, getattr(po, name)) for name in classes)
    )


def _page(title: str, prefix: str, names: list[str], home: Any) -> str:
    parts = [f"# {title}\n", (inspect.getdoc(home) or "").split("\n\n")[0], ""]
    return "\n".join([*parts, *(_entry(name, getattr(home, name), prefix) for name in names)])


def _entry(name: str, value: Any, prefix: str = "posteria") -> str:
    short = "po" + prefix.removeprefix("posteria")
    heading = f"## {name}\n"
    if not callable(value):
        return f"{heading}\n`{short}.{name}`\n\n{_shown(value)}\n\n{_example(f'{prefix}.{name}')}"
    text = _docstring(value)
    paper = getattr(value, "paper", "")
    parts = [heading, f"```python\n{short}.{name}{_signature(value)}\n```\n", text]
    if dataclasses.is_dataclass(value):
        parts.append(_fields(value))
    if isinstance(paper, str) and paper and paper not in text:
        parts.append(f"\nPaper: {paper}\n")
    parts.append(_example(f"{prefix}.{name}"))
    if inspect.isclass(value):
        parts.append(_verbs(value))
    return "\n".join(parts) + "\n"


_said: dict[str, str | None] = {}


def _example(name: str) -> str:
    """Code, and what it said where it was run."""
    if name not in EXAMPLES:
        return ""
    said = _said.get(name, "")
    if said is None:
        said = f"(needs {NEEDS[name]}: tests/bridges and tests/test_mlflow.py run the like)"
    told = f"```text\n{said}\n```\n" if said else ""
    return f"```python\n{EXAMPLES[name]}\n```\n{told}"


def _docstring(value: Any) -> str:
    """As Markdown: indented blocks are code, and what looks like markup is not."""
    text = inspect.getdoc(value) or ""
    module = inspect.getdoc(sys.modules.get(value.__module__, value)) or "" if hasattr(value, "__module__") else ""
    is_method = value.__module__.startswith("posteria.methods.") if hasattr(value, "__module__") else False
    whole = f"{text}\n\n{module}" if is_method and module and inspect.isclass(value) else text
    lines = []
    for line in whole.splitlines():
        is_code = line.startswith("    ") or line.startswith(">>>")
        lines.append(line if is_code else line.replace("*", r"\*").replace("<", r"\<").replace("|", r"\|"))
    return "\n".join(lines) + "\n"


def _signature(value: Any) -> str:
    """Names and defaults; a line each where they are many."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    short = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    text = OPAQUE.sub("...", str(short))
    if len(text) <= 100:
        return text
    return "(\n" + "".join(f"    {OPAQUE.sub('...', str(p))},\n" for p in plain) + ")"


def _fields(cls: type) -> str:
    """Settings, with what the source says of each behind its line, else `tools/fields.py`."""
    said = (MEANINGS if issubclass(cls, tuple(map(registry.get, SHELF))) else {}) | _comments(cls)
    rows = []
    for field in dataclasses.fields(cls):
        if field.init:
            rows.append(f"| `{field.name}` | {_cell(_default(field))} | {_cell(said.get(field.name, ''))} |")
    return "\n".join(["| setting | default | |", "| --- | --- | --- |", *rows, ""]) if rows else ""


def _comments(cls: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("posteria"):
            for name, comment in re.findall(r"^    (\w+): [^#\n]*#\s*(.*)$", inspect.getsource(base), re.M):
                found[name] = comment
    return found


def _default(field: Any) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{_shown(field.default)}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{_shown(field.default_factory())}`"
    return "needed"


def _verbs(cls: type) -> str:
    """Public methods that the class has for users."""
    if cls.__name__ not in ("Posterior", "Predictive", "Regressor", "Classifier", "Model", "Network"):
        return ""
    rows = []
    for name, member in inspect.getmembers(cls):
        is_own = (
            (getattr(member, "__module__", None) or "posteria").startswith("posteria") if callable(member) else True
        )
        text = inspect.getdoc(member) or ""
        if not name.startswith("_") and is_own and text and (callable(member) or isinstance(member, property)):
            rows.append(f"| `{name}` | {_cell(' '.join(text.split(chr(10) + chr(10))[0].split()))} |")
    return "\n".join(["| | |", "| --- | --- |", *rows, ""])


def _results(docs: Path) -> str:
    parts = ["# Results\n", "What studies and benchmarks printed, as it was printed, with the command that made it.\n"]
    for path in sorted((docs / "results").glob("*.txt")):
        text = path.read_text(encoding="utf-8").rstrip()
        picture = path.with_suffix(".png")
        parts.append(f"## {path.stem}\n")
        if picture.is_file():
            parts.append(f"![{path.stem}](results/{picture.name})\n")
        parts.append(f"```text\n{text}\n```\n")
    return "\n".join(parts)


def _gallery(docs: Path) -> str:
    """Every picture of docs/results, with the first line of the text of its name: the command that drew it."""
    parts = ["# Gallery\n", "Pictures, each with the command that draws it.\n"]
    parts += ["## One network, three methods\n", "![points with a gap](picture.png)\n", "    make picture\n"]
    for picture in sorted((docs / "results").glob("*.png")):
        text = _text_of(picture)
        if text is None:
            continue
        command, _, rest = text.read_text(encoding="utf-8").partition("\n")
        about = next((line for line in rest.splitlines() if line.strip()), "")
        parts += [f"## {picture.stem.replace('-', ' ')}\n", f"![{picture.stem}](results/{picture.name})\n"]
        parts += [f"    {command.removeprefix('$ ')}\n"]
        parts += [f"[What it printed](results.md#{text.stem}), beginning: *{_cell(about.strip())}*\n"]
    return "\n".join(parts)


def _text_of(picture: Path) -> Path | None:
    """What was printed when it was drawn: "sparse-lenet-5.png" belongs to "sparse-lenet.txt"."""
    stems = [picture.stem.rsplit("-", cut)[0] for cut in range(picture.stem.count("-") + 1)]
    found = (picture.with_name(f"{stem}.txt") for stem in stems)
    return next((text for text in found if text.is_file()), None)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ").replace("*", r"\*").replace("<", r"\<")


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) <= 80 else text[:77] + "..."


if __name__ == "__main__":
    importlib.invalidate_caches()
    write(Path(sys.argv[1]))
