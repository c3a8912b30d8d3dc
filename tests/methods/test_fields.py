"""One thing has one name, and a name is one thing, in the settings of all methods: `tools/fields.py` is the table."""

import importlib.util
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
_spec = importlib.util.spec_from_file_location("fields", TOOLS / "fields.py")
table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(table)

FIELDS = table.fields()


def test_every_setting_has_a_meaning_and_no_meaning_is_stale():
    assert {name for _, name, _, _ in FIELDS} == set(table.MEANINGS)


def test_no_two_names_mean_the_same():
    assert len(set(table.MEANINGS.values())) == len(table.MEANINGS)


def test_a_name_holds_one_kind_of_value_in_all_methods():
    kinds: dict[str, dict[str, set]] = {}
    for cls, name, kind, _ in FIELDS:
        if (cls.__name__, name) not in table.EXCEPTIONS:
            kinds.setdefault(name, {}).setdefault(table.kind_words(kind), set()).add(cls.__name__)
    assert not {name: found for name, found in kinds.items() if len(found) > 1}


def test_an_exception_is_one_and_says_why():
    usual = {}
    for cls, name, kind, _ in FIELDS:
        if (cls.__name__, name) not in table.EXCEPTIONS:
            usual[name] = table.kind_words(kind)
    own = {(cls.__name__, name): table.kind_words(kind) for cls, name, kind, _ in FIELDS}
    for (owner, name), reason in table.EXCEPTIONS.items():
        assert own[owner, name] != usual[name], f"{owner}'s {name} needs no exception"
        assert reason


def test_counts_are_whole_numbers():
    for cls, name, kind, _ in FIELDS:
        is_count = name.startswith(("num_", "max_")) or name in ("size", "rank", "thinning", "patience", "batch_size")
        is_count |= name == "groups"  # each has a number
        assert ("whole number" in table.kind_words(kind)) == (is_count or name.endswith(("_every", "_per_snapshot"))), (
            f"{cls.__name__}'s {name} is {table.kind_words(kind)}"
        )


def test_the_table_is_printed(capsys):
    table.main()
    printed = capsys.readouterr().out
    assert all(f"{name}: {meaning}" in printed for name, meaning in table.MEANINGS.items())
