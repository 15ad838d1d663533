from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nas_rlm import RLM
from nas_rlm.surrogates.fitting import fit_graph_surrogate, fit_graph_surrogates
from nas_rlm.surrogates.graphs.features import graph_features_of_space
from nas_rlm.surrogates.legacy import upgrade
from nas_rlm.surrogates.programs.ngrams import NgramSurrogate
from nas_rlm.surrogates.registry import from_saved
from tests.nas_rlm import checkpoint_files
from tests.nas_rlm.stubs import counted_cells
from tests.nas_rlm.surrogates.graphs.test_transfer import rows

TENSORS = {"std": "deviation", "hyperparameters": "weights", "alpha": "solved", "offset": "middle"}
GRAPH_KEYS = {"features": "counts", "sources": "advisers", "network_temperatures": "beside"}
NGRAM_KEYS = {
    "log_size_scaling": "usual",
    "residual_stds": "doubts",
    "network_temperatures": "beside",
}


def former_tensor_name(name):
    *source, last = name.replace("source", "adviser").split(".")
    return ".".join([*source, TENSORS.get(last, last)])


def former_graph_surrogate(surrogate):
    """Return the tensors and the description of a graph surrogate as older versions saved them."""
    tensors = {former_tensor_name(name): t for name, t in surrogate.tensors().items()}
    description = {GRAPH_KEYS.get(key, key): value for key, value in surrogate.description().items()}
    return tensors, description | {"kind": "process"}


@pytest.fixture(scope="module")
def with_sources():
    existing = {
        "nasbench101": [
            fit_graph_surrogate(graph_features_of_space("nasbench101"), rows("nasbench101", 60), ["accuracy"])
        ]
    }
    (surrogate,) = fit_graph_surrogates(rows("nasbench201", 12), ["accuracy"], existing)["nasbench201"]
    assert surrogate.graph_features.sources
    return replace(surrogate, temperatures={"accuracy": 1.2}, network_temperatures={"accuracy": 3.0})


def test_a_former_graph_surrogate_predicts_the_same(with_sources):
    restored = from_saved(*former_graph_surrogate(with_sources))
    present = from_saved(with_sources.tensors(), with_sources.description())
    assert restored.description() == present.description()
    features = present.graph_features.of_rows(counted_cells(10))
    expected, predicted = (s.predict(features, "accuracy") for s in (present, restored))
    assert (predicted.mean == expected.mean).all() and (predicted.std == expected.std).all()


def test_the_oldest_graph_surrogates_have_neither_kind_nor_sources_nor_network_temperatures():
    surrogate = fit_graph_surrogate(graph_features_of_space("nasbench201"), counted_cells(20), ["accuracy"])
    tensors, description = former_graph_surrogate(surrogate)
    oldest = {k: v for k, v in description.items() if k not in ("kind", "advisers", "beside")}
    restored = from_saved(tensors, oldest)
    assert restored.description() == surrogate.description()
    assert all(torch.equal(t, surrogate.tensors()[name]) for name, t in restored.tensors().items())


def test_a_former_ngram_surrogate_predicts_the_same():
    programs = [f"x = [0] * {i}" for i in range(20)]
    values = {"memory": 1.0 + np.arange(20), "latency": 20.0 - np.arange(20)}
    surrogate = NgramSurrogate.fit(programs, values)
    names = {"idf": "rarity", "label_quantiles0": "values0", "label_quantiles1": "values1"}
    tensors = {names.get(name, name): t for name, t in surrogate.tensors().items()}
    description = {NGRAM_KEYS.get(key, key): value for key, value in surrogate.description().items()}
    restored = from_saved(tensors, description | {"kind": "words"})
    assert restored.description() == surrogate.description()
    for name in values:
        expected, predicted = (s.predict(s.transform(programs), name) for s in (surrogate, restored))
        assert (predicted.median == expected.median).all()


def test_present_names_are_left_as_they_are(with_sources):
    tensors, description = with_sources.tensors(), with_sources.description()
    assert upgrade(tensors, description) == (tensors, description)


def test_a_former_checkpoint_is_loaded_and_saved_with_present_names(with_sources, tiny_checkpoint, tmp_path):
    rlm = RLM.load(tiny_checkpoint)
    rlm.surrogates = {"nasbench201": [with_sources]}
    rlm.save(tmp_path)
    path, config = tmp_path / "surrogates.safetensors", tmp_path / "config.json"
    present, text = load_file(path), config.read_text()
    tensors, description = former_graph_surrogate(
        from_saved(with_sources.tensors(), with_sources.description())
    )
    path.unlink()
    save_file(
        {f"nasbench201.0.{name}": t.contiguous() for name, t in tensors.items()},
        tmp_path / "experts.safetensors",
    )
    content = checkpoint_files.read(tmp_path)
    del content["surrogates"]
    checkpoint_files.write(tmp_path, content | {"experts": {"nasbench201": [description]}})
    RLM.load(tmp_path).save(tmp_path)
    assert not (tmp_path / "experts.safetensors").exists()
    assert config.read_text() == text
    assert all(torch.equal(t, present[name]) for name, t in load_file(path).items())
