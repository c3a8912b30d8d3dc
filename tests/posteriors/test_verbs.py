"""What can be done with a posterior is found by name, and says what it does."""

import inspect

import pytest

import posteria as po
from posteria.posteriors import base


@pytest.mark.parametrize("name", base.VERBS)
def test_every_verb_is_there_and_takes_what_its_method_hands_on(name):
    function = base._verb(name)
    assert inspect.getdoc(function)
    method = getattr(po.Posterior, name, None)
    if method is not None:  # compressing is for what was pruned
        handed = list(inspect.signature(method).parameters)[1:]
        taken = list(inspect.signature(function).parameters)[1:]
        assert [given.replace("path", "folder") for given in handed] == [
            wanted.replace("path", "folder") for wanted in taken
        ]
        assert inspect.getdoc(method) and inspect.signature(method).return_annotation is not inspect.Signature.empty
