"""The two constraint files agree with the dependencies of pyproject.toml."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]


def pins(file: str) -> dict[str, Version]:
    lines = (ROOT / file).read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(r.name): Version(str(r.specifier).removeprefix("==")) for r in requirements}


def dependencies(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(line) for lines in lists for line in lines]


def test_the_minimum_constraints_are_the_lower_bounds_of_the_dependencies():
    bounds = {
        canonicalize_name(r.name): Version(s.version)
        for r in dependencies()
        for s in r.specifier
        if s.operator == ">="
    }
    assert pins("constraints-min.txt") == bounds


@pytest.mark.parametrize("extra", ["dev", "docs"])
def test_every_dependency_is_pinned_within_its_bounds(extra):
    pinned = pins("constraints.txt")
    for requirement in dependencies(extra):
        if not requirement.extras or requirement.name != "nas-rlm":
            assert pinned[canonicalize_name(requirement.name)] in requirement.specifier
