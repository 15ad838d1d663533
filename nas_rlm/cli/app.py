"""The application, its global options, the types of options, and functions that several verbs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

import nas_rlm
import search_spaces
from nas_rlm.files import NO_CSV_SUFFIXES, check_target
from nas_rlm.graph.onnx_graphs.input_shapes import parse_input_shape
from nas_rlm.utils.progress import print_status, progress_bar, set_mode
from nas_rlm.utils.validation import MIN_QUANTILE_LEVEL

if TYPE_CHECKING:
    from nas_rlm.graph.limits import Limits
    from nas_rlm.rlm import RLM
    from nas_rlm.search.ray_cluster import LocalWorkers
    from search_spaces import SearchSpace

app = App(
    name="nas-rlm",
    help=nas_rlm.__doc__,
    version=nas_rlm.__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)
app.meta.group_parameters = Group("Global options", sort_key=100)
app.meta.suppress_keyboard_interrupt = False


def _split(_: Any, tokens: Sequence[Any]) -> tuple[str, ...]:
    return tuple(part.strip() for token in tokens for part in token.value.split(",") if part.strip())


def _parse_levels(type_: Any, tokens: Sequence[Any]) -> tuple[float, ...]:
    texts = _split(type_, tokens)
    try:
        levels = tuple(float(text) for text in texts)
    except ValueError:
        levels = ()
    distinct = {f"{level:g}" for level in levels}
    is_in_range = all(MIN_QUANTILE_LEVEL <= level <= 1 - MIN_QUANTILE_LEVEL for level in levels)
    if not levels or len(distinct) < len(levels) or not is_in_range:
        raise ValueError(
            f"{','.join(texts)!r} is not a list of different levels between .001 and .999: try .1,.9"
        )
    return levels


def _parse_integer(_: Any, tokens: Sequence[Any]) -> int:
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


def _parse_input_shapes(_: Any, tokens: Sequence[Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in (parse_input_shape(token.value) for token in tokens):
        if name in shapes:
            raise ValueError(f"input {name!r} has two shapes: give one")
        shapes[name] = shape
    return tuple(shapes.items())


CommaList = Annotated[tuple[str, ...], Parameter(converter=_split, n_tokens=1, negative="")]
SpaceList = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")]
QuantileLevels = Annotated[tuple[float, ...], Parameter(converter=_parse_levels, n_tokens=1, negative="")]
Integer = Annotated[int, Parameter(converter=_parse_integer, n_tokens=1)]
InputShapes = Annotated[  # pairs for dict(), of an option that is repeated
    tuple[tuple[str, tuple[int, ...]], ...],
    Parameter(
        converter=_parse_input_shapes, n_tokens=1, negative="", metavar="NAME:SHAPE", show_default=False
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class FileLimits:
    """Limits on what is read from a file.

    Args:
        max_bytes: largest size of an ONNX file, without external data.
        max_nodes: largest number of nodes, after functions are inlined.
        max_depth: largest depth of nested functions and subgraphs.
        max_seconds: longest conversion of a file to text.
    """

    max_bytes: Integer = 2**31
    max_nodes: Integer = 20_000
    max_depth: Integer = 32
    max_seconds: float = 60.0

    def checked(self) -> Limits:
        """Return the limits for the functions that read files.

        Raises:
            ValueError: one is not positive.
        """
        from nas_rlm.graph.limits import Limits

        return Limits(self.max_bytes, self.max_nodes, self.max_depth, self.max_seconds)


DEFAULT_FILE_LIMITS = FileLimits()
Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@app.meta.default
def run_verb(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Flag = False,
    progress: Flag = False,
) -> None:
    """Run a verb with the global options.

    Args:
        tokens: the command line without global options.
        quiet: show no progress bars and no status lines, only results, warnings and errors.
        progress: draw progress bars even if stderr is not a terminal. Without it, a file gets at most a line
            for each tenth of the work.
    """
    if quiet and progress:
        raise ValueError("--quiet and --progress exclude each other: give one of them")
    set_mode("quiet" if quiet else "bar" if progress else "auto")
    app(tokens, exit_on_error=False, print_error=False, result_action="return_none")


def register_spaces(locations: Sequence[str]) -> None:
    """Load users' own spaces, so that rows of tables can name them.

    Args:
        locations: `FILE.py:CLASS`, `MODULE:CLASS`, or names of registered spaces.

    Raises:
        ValueError: one cannot be loaded.
    """
    for location in locations:
        search_spaces.get(location)


def check_minimum(option: str, value: int, minimum: int) -> None:
    """Refuse a number that is too small.

    Args:
        option: name of the option, such as `--seeds`.
        value: its value.
        minimum: the smallest valid value.

    Raises:
        ValueError: the value is smaller.
    """
    if value < minimum:
        raise ValueError(f"{option} is {value}, expected at least {minimum}")


def load(model: str) -> RLM:
    """Return a model by its directory or shipped name; torch is imported here and not before."""
    from nas_rlm.rlm import RLM

    return RLM.load(model)


def check_files(files: Sequence[Path]) -> None:
    """Refuse files that do not exist.

    Raises:
        FileNotFoundError: one does not.
    """
    for file in files:
        if not file.exists():
            raise FileNotFoundError(f"there is no file {str(file)!r}")


def check_table_target(path: Path) -> None:
    """Refuse files at which no parquet table can be written, or whose ending is that of another format.

    Raises:
        ValueError: the file is such a one.
    """
    if path.suffix.lower() not in ("", ".parquet"):
        raise ValueError(
            f"--out {path}: the table is a parquet file, expected {path.with_suffix('.parquet')}"
        )
    check_target(path)


def check_csv_target(path: Path) -> None:
    """Refuse files at which no CSV file can be written, or whose ending is that of another format.

    Raises:
        ValueError: the file is such a one.
    """
    if path.suffix.lower() in (*NO_CSV_SUFFIXES, ".tsv"):
        raise ValueError(f"--out {path}: predictions are a CSV file, expected {path.with_suffix('.csv')}")
    check_target(path)


def check_networks(files: Sequence[Path], limits: Limits) -> None:
    """Refuse files that are no ONNX files, before torch is imported.

    Args:
        files: paths of the files.
        limits: limits on each file.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not an ONNX file, or exceeds a limit.
    """
    from nas_rlm.graph.onnx_graphs import loading

    for file in files:
        loading.load(file, limits)


def check_model(
    model: str, objectives: Sequence[str] = (), others: Sequence[str] = (), for_programs: bool = False
) -> None:
    """Refuse a model and objectives that do not exist, before torch is imported.

    Args:
        model: directory or name of the model.
        objectives: objectives that it is to predict.
        others: objectives that need no model, such as those of user functions.
        for_programs: whether programs or texts are predicted, which have no costs that are computed.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: the model does not have an objective.
    """
    from nas_rlm.data.tables import EXACT_OBJECTIVES
    from nas_rlm.model.directories import saved_objectives
    from nas_rlm.utils.validation import suggest

    known = saved_objectives(model)
    available = [*others, *(() if for_programs else EXACT_OBJECTIVES), *known]
    for name in objectives if known else ():
        if name not in available:
            raise ValueError(f"unknown objective {name!r}; {suggest(name, available)}")


def checked_search(
    space: str,
    objectives: Sequence[str],
    constraints: Sequence[str],
    model: str,
    data: Path | None,
    predicts_all: bool = True,
    functions: Sequence[str] = (),
    **settings: Any,
) -> SearchSpace[Any]:
    """Return the space of a search, and refuse invalid arguments before torch is imported.

    Args:
        space: name or location of the space.
        objectives: objectives to optimise.
        constraints: bounds on objectives.
        model: directory or name of the model.
        data: a table of labels.
        predicts_all: whether the model predicts all objectives that are not measured.
        functions: user-defined objectives, such as energy=mine.py:energy.
        settings: other settings, see `nas_rlm.search.settings.SearchSettings`.

    Raises:
        FileNotFoundError: there is no such model or table.
        ValueError: an argument is invalid.
    """
    from nas_rlm.data.tables import check_readable
    from nas_rlm.search.settings import SearchSettings

    search_space = search_spaces.get(space)
    checked = SearchSettings(search_space.name, tuple(objectives), tuple(constraints), **settings).for_space(
        search_space
    )
    others = [*checked.measured_objectives, *(text.partition("=")[0] for text in functions)]
    check_model(model, checked.all_objectives if predicts_all else (), others)
    if data is not None:
        check_readable(data)
    return search_space


def connect_workers(ray: str) -> LocalWorkers:
    """Return the workers that predict and measure, see `nas_rlm.search.ray_cluster`.

    Args:
        ray: address of a Ray cluster; empty for this process.
    """
    from nas_rlm.search import ray_cluster

    if ray:
        announce_ray(ray)
    return ray_cluster.connect_workers(ray)


def announce_ray(ray: str) -> None:
    """Print a status line before connecting to Ray, which can take half a minute."""
    print_status(f"connecting to Ray ({ray})")


def show_progress(items: Sequence[Any], description: str) -> Any:
    """Return an iterable over items that shows its progress after two seconds."""
    return progress_bar(items, desc=description, unit="net", delay=2)
