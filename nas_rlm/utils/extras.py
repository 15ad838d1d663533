"""Checks for packages of optional dependencies, before the work that needs them."""

from __future__ import annotations

from importlib.util import find_spec

MODULES = {  # of each extra of this package
    "baselines": ("sklearn",),
    "encoders": ("transformers",),
    "foreign": ("transformers", "onnxscript"),
    "official": ("nas_201_api",),
    "onnxruntime": ("onnxruntime",),
    "optuna": ("optuna",),
    "ray": ("ray",),
    "smac": ("smac", "ConfigSpace"),
    "timm": ("timm",),
    "triton": ("triton",),
}


def is_installed(extra: str) -> bool:
    """Return whether the packages of an extra are installed.

    Args:
        extra: one of `MODULES`.
    """
    return not _missing(MODULES[extra])


def require(extra: str, purpose: str, *modules: str) -> None:
    """Refuse work whose packages are not installed.

    Examples:
        >>> require("onnxruntime", "an exported model")

    Args:
        extra: one of `MODULES`.
        purpose: what needs the packages, as the start of the error message.
        modules: further modules of the extra that are needed.

    Raises:
        ValueError: a package is not installed.
    """
    missing = _missing((*MODULES[extra], *modules))
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        raise ValueError(
            f"{purpose} needs {' and '.join(missing)}, which {verb} not installed:"
            f" pip install 'nas-rlm[{extra}]'"
        )


def _missing(modules: tuple[str, ...]) -> list[str]:
    """Return the modules that cannot be found."""
    return [name for name in modules if find_spec(name) is None]
