"""The protocols of what a trainer may have are what the package calls."""

import inspect
import re
from pathlib import Path

import fl
import pytest

PAGE = Path(__file__).parents[1] / "README.md"
ATTRIBUTES = {"buffers", "learns", "remembers", "takes_feature_loss", "scales_rate", "takes_gradient_terms"} | {
    "schedules_epoch", "schedules_pass", "step_momentum", "beside_gradient", "decays_weights", "starts_again"
}  # fmt: skip


def methods(protocol):
    return {name for name, one in vars(protocol).items() if inspect.isfunction(one) and not name.startswith("_")} - {"__init__"}


def test_the_page_names_each_method_and_each_has_a_docstring():
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith("| `@fl.trainer(name)`"))
    _, _, must, may, _ = row.split("|")
    every = [getattr(fl.roles, name) for name in fl.roles.__all__]
    assert methods(fl.roles.Trainer) == set(re.findall(r"`(\w+)\(", must))
    assert set().union(*map(methods, every)) - methods(fl.roles.Trainer) == set(re.findall(r"`(\w+)`", may)) - ATTRIBUTES
    assert all(one.__doc__ for role in every for one in [role, *(getattr(role, name) for name in methods(role))])
    assert all(name in fl.roles.Trainer.__doc__ + fl.roles.Parametric.__doc__ for name in ATTRIBUTES)


def test_the_base_classes_have_the_methods_with_these_arguments():
    torch = pytest.importorskip("torch")
    assert torch
    import fl.torch

    for name in fl.roles.__all__:
        role = getattr(fl.roles, name)
        assert issubclass(fl.torch.Trainer, role) if name != "Trainer" else isinstance(object.__new__(fl.torch.Trainer), role)
        for method in methods(role):
            wanted, found = (inspect.signature(getattr(of, method)).parameters for of in (role, fl.torch.Trainer))
            assert [*wanted] == [*found], method
