"""nas-rlm: neural architecture search with a regression language model that reads ONNX text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from nas_rlm._version import __version__

if TYPE_CHECKING:
    from nas_rlm.data.tables import Row, Table
    from nas_rlm.data.tables import read as read_table
    from nas_rlm.data.tables import write as write_table
    from nas_rlm.devices.known import known_devices
    from nas_rlm.integrations.scikit_learn import TextRegressor
    from nas_rlm.reports.comparison import compare_networks
    from nas_rlm.reports.inspection import inspect_network
    from nas_rlm.reports.space_checks import check_space
    from nas_rlm.rlm import RLM
    from nas_rlm.search.settings import Constraint, SearchSettings
    from nas_rlm.search_run import SearchRun, run_search
    from nas_rlm.study.study import Study
    from nas_rlm.text import from_architecture, from_onnx
    from nas_rlm.text.torch_modules import from_torch
    from search_spaces import get as get_space
    from search_spaces import names as space_names
    from search_spaces import register as register_space

__all__ = [
    "RLM",
    "Constraint",
    "Row",
    "SearchRun",
    "SearchSettings",
    "Study",
    "Table",
    "TextRegressor",
    "__version__",
    "check_space",
    "compare_networks",
    "from_architecture",
    "from_onnx",
    "from_torch",
    "get_space",
    "inspect_network",
    "known_devices",
    "read_table",
    "register_space",
    "run_search",
    "space_names",
    "write_table",
]

# Imported on first use, since torch and pymoo take seconds: name -> module and its attribute.
_LAZY = {
    "RLM": ("nas_rlm.rlm", "RLM"),
    "TextRegressor": ("nas_rlm.integrations.scikit_learn", "TextRegressor"),
    "Constraint": ("nas_rlm.search.settings", "Constraint"),
    "Row": ("nas_rlm.data.tables", "Row"),
    "SearchSettings": ("nas_rlm.search.settings", "SearchSettings"),
    "SearchRun": ("nas_rlm.search_run", "SearchRun"),
    "Study": ("nas_rlm.study.study", "Study"),
    "Table": ("nas_rlm.data.tables", "Table"),
    "check_space": ("nas_rlm.reports.space_checks", "check_space"),
    "compare_networks": ("nas_rlm.reports.comparison", "compare_networks"),
    "from_architecture": ("nas_rlm.text", "from_architecture"),
    "from_onnx": ("nas_rlm.text", "from_onnx"),
    "from_torch": ("nas_rlm.text.torch_modules", "from_torch"),
    "get_space": ("search_spaces", "get"),
    "inspect_network": ("nas_rlm.reports.inspection", "inspect_network"),
    "known_devices": ("nas_rlm.devices.known", "known_devices"),
    "read_table": ("nas_rlm.data.tables", "read"),
    "register_space": ("search_spaces", "register"),
    "run_search": ("nas_rlm.search_run", "run_search"),
    "space_names": ("search_spaces", "names"),
    "write_table": ("nas_rlm.data.tables", "write"),
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, those that are not imported yet as well."""
    return sorted({*globals(), *__all__})
