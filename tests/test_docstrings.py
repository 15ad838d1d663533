"""Run the examples of the docstrings of each module."""

import doctest
import importlib
import pkgutil

import pytest

import nas_rlm
import search_spaces

MODULES = sorted(
    module.name
    for package in (nas_rlm, search_spaces)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name, tmp_path, monkeypatch):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("nas_rlm", "search_spaces"):
            raise
        pytest.skip(f"{name} needs an optional package: {error}")
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
