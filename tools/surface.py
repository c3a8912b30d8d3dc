"""Write `src/posteria/__init__.pyi`, what type checkers and editors see of the public names, from the table of them."""

from pathlib import Path

import posteria as po

STUB = Path(po.__file__).with_suffix(".pyi")


def stub() -> str:
    lines = []
    for name, home in sorted(po._HOMES.items()):
        module, _, attribute = home.partition(":")
        package, _, last = module.rpartition(".")
        found, source = (attribute, module) if attribute else (last, package)
        lines.append(f"from {source} import {found} as {name}")
    return "# written by `make surface`\n" + "\n".join(
        [*sorted(lines), "", "__version__: str", "__all__: list[str]", ""]
    )


if __name__ == "__main__":
    STUB.write_text(stub())
