"""The check of a search space finds violations of its contract, and names the architecture."""

import numpy as np
import pytest

import search_spaces
from nas_rlm import check_space
from nas_rlm.cli import main
from nas_rlm.text import from_architecture
from search_spaces.graph import Constant
from tests.search_spaces import plain_space
from tests.search_spaces.plain_space import Plain, PlainSpace


@pytest.mark.parametrize("name", search_spaces.names())
def test_the_spaces_of_this_package_keep_the_contract(name):
    report = check_space(name, count=2)
    assert (report.space, report.count) == (name, 2)
    assert 0 < report.flops[0] <= report.flops[1]


def test_an_own_space_keeps_it():
    report = check_space(PlainSpace(), count=5)
    assert str(report).startswith("plain: 5 architectures without problems; flops ")


@pytest.mark.parametrize("batch_size", [2, 5])
def test_an_own_space_with_a_batch_size_has_the_costs_of_the_batch(batch_size):
    single, space = PlainSpace(), type("Batched", (PlainSpace,), {"batch_size": batch_size})()
    architecture = single.parse("3x16 5x32 1x64")
    assert check_space(space, count=3).flops[0] % batch_size == 0
    assert space.flops(architecture) == batch_size * single.flops(architecture)
    assert space.params(architecture) == single.params(architecture)
    assert f"main(float[{batch_size},3,32,32]" in from_architecture(space, architecture)
    assert space.to_onnx(architecture, batch=1) == single.to_onnx(architecture)


def broken(**members):
    """The space with other methods or attributes."""
    return type("Broken", (PlainSpace,), {"name": "broken", **members})()


def decode_to(stages):
    return lambda self, genome: Plain(stages(PlainSpace.decode(self, genome).stages))


def raising(error):
    def method(self, *_):
        raise error

    return method


def invalid_at_times(space, graph, architecture):
    if "5x" in str(architecture):
        raise KeyError("depth")
    return PlainSpace.write(space, graph, architecture)


def write(layers):
    def method(self, graph, architecture):
        return graph.classifier(layers(graph, architecture), 10)

    return method


def random_width(graph, architecture):
    return graph.conv(graph.input, int(np.random.default_rng().integers(1, 10**6)), 1)


def unlike_first(graph, architecture):
    width = dict(architecture.stages).get(5, 16)
    return graph.op("Add", graph.conv(graph.input, 16, 3), graph.conv(graph.input, width, 1))


def with_frozen_weight(graph, architecture):
    return graph.op("Add", graph.input, graph.weight(3, 1, 1, trainable=False))


def with_fixed_batch(batch):
    return write(lambda graph, _: graph.op("Reshape", graph.input, Constant((batch, 3, 32, -1))))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (broken(genes=(1, 1)), "at least one gene with two values"),
        (broken(size=730), "size is 730, but there are only 729 genomes"),
        (broken(size=700), "size is 700, but the genomes have 729 architectures"),
        (broken(decode=raising(KeyError("k"))), r"decode of the genome \[0, 0, .* raises KeyError"),
        (
            broken(genes=(99,) * 6, size=None, decode=raising(ValueError("no"))),
            "decode raises a ValueError for each of 1,000",
        ),
        (broken(parse=raising(KeyError("k"))), r"parse\(''\) raises KeyError: 'k'; expected a ValueError"),
        (broken(parse=lambda self, text: Plain(())), r"parse\(''\) returns Plain\(stages=\(\)\)"),
        (broken(encode=lambda self, a: np.zeros(6, int)), r"decode\(encode\(a\)\) is '1x16 1x16 1x16'"),
        (broken(encode=lambda self, a: np.zeros(5, int)), "has 6 genes, not shape"),
        (broken(sample=raising(IndexError("i"))), r"sample\(rng\) raises IndexError: i"),
        (broken(sample=lambda self, rng: Plain(((7, 16),) * 3)), "'7x16 7x16 7x16' of sample: parse raises"),
        (broken(validate=raising(ValueError("v"))), "of sample: validate raises ValueError: v"),
        (broken(mutate=lambda self, a, rng: a), r"mutate\(.*\) returns the same architecture"),
        (
            broken(mutate=lambda self, a, rng: Plain(((3, 99),) * 3)),
            r"'3x99 3x99 3x99' of mutate\(.*\): parse raises",
        ),
        (
            broken(crossover=lambda self, a, b, rng: Plain(((3, 99),) * 3)),
            r"'3x99 3x99 3x99' of crossover\(.*\): parse raises",
        ),
        (broken(write=lambda self, graph, a: None), "the output that `write` returns is None"),
        (broken(write=lambda self, graph, a: graph.input), "is graph.input: expected the output of a layer"),
        (broken(write=raising(KeyError("depth"))), "is not valid: KeyError: 'depth'"),
        (broken(write=invalid_at_times), r"the network of .*5x.* is not valid: KeyError: 'depth'"),
        (broken(write=write(random_width)), "write gives another network when it is called again"),
        (broken(write=write(unlike_first)), r"the network of .*5x(32|64).* is not valid: graph.op\('Add'\)"),
        (broken(write=write(with_frozen_weight)), "flops and params are 30 and 40, but .* are 30 and 43"),
        (broken(write=with_fixed_batch(1)), "with a batch of 2"),
        (broken(write=with_fixed_batch(2), batch_size=2), "with a batch of 3"),
        (broken(params=lambda self, a: 7), "flops and params are .* and 7, but"),
    ],
)
def test_a_violation_is_reported(space, message):
    with pytest.raises(ValueError, match=rf"broken: .*{message}") as error:
        check_space(space)
    assert "\n" not in str(error.value)


def test_names_of_other_spaces_are_refused():
    with pytest.raises(ValueError, match="has the name 'nasbench201', which another search space has"):
        check_space(broken(name="nasbench201"))


def test_command(capsys, monkeypatch):
    monkeypatch.setattr(search_spaces, "_registered", {})
    location = f"{plain_space.__file__}:PlainSpace"
    assert main(["spaces", "check", location, "--count", "3"]) == 0
    assert capsys.readouterr().out.startswith("plain: 3 architectures without problems; flops")
    assert main(["spaces", "check", location, "--count", "0"]) == 2
    assert "--count is 0, expected at least 1" in capsys.readouterr().err
    assert main(["spaces", "check", location.replace("PlainSpace", "PlainSpaces")]) == 2
    assert "did you mean 'PlainSpace'?" in capsys.readouterr().err
