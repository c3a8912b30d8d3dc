"""Every registered method is held to the laws of its fidelity."""

import importlib
import pkgutil

import pytest

import laws
from posteria.methods import registry
from posteria.testing import AsymptoticLaws, ExactLaws, FamilyOptimumLaws, MethodLaws, PointLaws, ProcedureLaws

BY_FIDELITY = {
    "exact": ExactLaws,
    "family-optimum": FamilyOptimumLaws,
    "asymptotic": AsymptoticLaws,
    "point": PointLaws,
    "procedure": ProcedureLaws,
}


def law_classes() -> dict[type, type]:
    """The class of the method under test -> its law class, over all modules of tests/laws."""
    found = {}
    for module in pkgutil.iter_modules(laws.__path__):
        for item in vars(importlib.import_module(f"laws.{module.name}")).values():
            if isinstance(item, type) and issubclass(item, MethodLaws) and hasattr(item, "method"):
                found[type(item.method)] = item
    return found


@pytest.mark.parametrize("name", registry.SHELF)
def test_every_method_has_a_law_class_of_its_fidelity(name):
    method = registry.get(name)
    assert method in law_classes(), f"{name} has no law class in tests/laws"
    assert issubclass(law_classes()[method], BY_FIDELITY[method.fidelity])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in registry.SHELF if registry.get(name).fidelity == "exact"])
def test_a_warm_posterior_is_as_wide_as_it_should_be(name):
    law_classes()[registry.get(name)]().check("linear_regression", temperature=2.0)
