"""Recipes: the YAML files from which every training run starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from nas_rlm.files import RECIPES, read_text
from nas_rlm.utils.validation import hint


@dataclass(frozen=True)
class TableRecipe:
    """How one table is used.

    Args:
        path: a parquet file, relative to the data directory.
        rows: training rows an epoch, drawn anew each epoch, some twice if there are fewer; None for all.
        sequences: at most so many sequences a presentation, each with other numbers and from the text alone.
        lessons: beside the rows, so many random networks of each of its spaces an epoch, with what the rows
            let expect of them, see `nas_rlm.training.distillation`.
        experts: kinds of numbers, such as accuracy or latency, of which the model keeps an expert that learns
            from the rows as well, see `nas_rlm.surrogates.graph_surrogate`.
    """

    path: str
    rows: int | None = None
    sequences: int = 1
    lessons: int | None = None
    experts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_counts(self, self.path, "rows", "sequences", "lessons")

    def told(self, objectives: Sequence[str]) -> list[str]:
        """Those of objectives of which the model keeps an expert."""
        return [name for name in objectives if name.split("/")[0] in self.experts]


@dataclass(frozen=True)
class SpaceRecipe:
    """How networks of one space are used, drawn at random, with numbers that are counted in them.

    Args:
        space: its name.
        networks: so many different ones.
        rows, sequences: as for a table.
        teacher: a checkpoint, a folder or a shipped model's name: the numbers are what it tells of the
            networks, see `nas_rlm.training.distillation.taught`.
    """

    space: str
    networks: int
    rows: int | None = None
    sequences: int = 1
    teacher: str = ""

    def __post_init__(self) -> None:
        _check_counts(self, self.space, "networks", "rows", "sequences")

    @property
    def use(self) -> TableRecipe:
        """The same as for a table."""
        return TableRecipe(self.space, self.rows, self.sequences)


@dataclass(frozen=True)
class Recipe:
    """A training run.

    Args:
        tables: what it trains on.
        spaces: networks whose numbers are counted, what it trains on as well.
        start: a checkpoint to start from, a folder or a shipped model's name: its network and tokenizer are
            kept, and of its objectives those that the recipe has; by default a new network.
        size: the network's dial.
        statements: layers that read statements by themselves, see `nas_rlm.model.network.Config`.
        encoder: a pretrained one that reads in the place of the network's own and does not change, see
            `nas_rlm.model.encoders.load`; it has its own tokenizer.
        tokenizer: a tokenizer's file, or a shipped model's name; by default one is trained.
        vocab_size, tokenizer_texts, longest_piece: of that one, on this many texts of each table.
        numbers: at most so many in one sequence of the decoder: accuracy first, then others at random.
        epochs, batch_size: how long; rows a step.
        optimizer: "adamw", "adafactor" or "muon" (for the layers' matrices, AdamW for the rest).
        learning_rate, warmup, weight_decay, clip: steps of linear warm-up, then as `schedule` says.
        schedule: "cosine", to zero at the end, or "constant".
        ema: decay of the averaged weights, which are the ones kept.
        noise: standard deviation of what is added to the numbers to learn, relative to the spread of each
            objective; it falls to zero in the course of the training.
        precision: "float32" or "bfloat16" (matrix products only).
        validation: share of architectures held out, by the space's key.
        by_group: hold out problems with all the programs that solve them.
        validate_every, validation_rows, patience: check this many held-out rows a table every so many steps
            and stop after `patience` checks without a better mean Spearman; 0 never stops.
        checkpoint_every: steps between resumable checkpoints.
        seed: of everything random.
    """

    tables: tuple[TableRecipe, ...] = ()
    spaces: tuple[SpaceRecipe, ...] = ()
    start: str = ""
    size: int = 4
    statements: int = 0
    encoder: str = ""
    tokenizer: str = ""
    vocab_size: int = 8192
    tokenizer_texts: int = 4000
    longest_piece: int = 64
    numbers: int = 6
    epochs: int = 6
    batch_size: int = 64
    optimizer: str = "adamw"
    learning_rate: float = 2e-3
    warmup: int = 200
    schedule: str = "cosine"
    weight_decay: float = 0.05
    clip: float = 1.0
    ema: float = 0.999
    noise: float = 0.0
    precision: str = "float32"
    validation: float = 0.1
    by_group: bool = False
    validate_every: int = 500
    validation_rows: int = 500
    patience: int = 0
    checkpoint_every: int = 250
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision is {self.precision!r}; expected float32 or bfloat16")
        if self.optimizer not in ("adamw", "adafactor", "muon"):
            raise ValueError(f"optimizer is {self.optimizer!r}; expected adamw, adafactor or muon")
        if self.schedule not in ("cosine", "constant"):
            raise ValueError(f"schedule is {self.schedule!r}; expected cosine or constant")
        if self.encoder and (self.start or self.tokenizer):
            raise ValueError(
                f"encoder is {self.encoder!r}, which has its own tokenizer and is new: expected neither start"
                " nor tokenizer beside it"
            )
        if not self.tables and not self.spaces:
            raise ValueError(
                "the recipe has no tables; expected a list such as [{path: nasbench201.parquet}], or spaces"
                " such as [{space: nasbench201, networks: 1000}]"
            )
        for name in (
            *("size", "epochs", "batch_size", "validate_every", "validation_rows", "checkpoint_every"),
            *("vocab_size", "tokenizer_texts", "longest_piece"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        if self.numbers < 2:
            raise ValueError(f"numbers is {self.numbers}; expected at least 2, accuracy and another")
        for name in ("validation", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share from 0 to below 1")
        for name in ("noise", "weight_decay", "warmup", "patience", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        for name in ("learning_rate", "clip"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")

    def alone(self, table: str) -> Recipe:
        """The same training on one of its tables: `fbnet` for architectures/fbnet.parquet."""
        names = {Path(t.path).stem: t for t in self.tables}
        if table not in names:
            raise ValueError(f"the recipe has no table {table!r}; {hint(table, names)}")
        return replace(self, tables=(names[table],), spaces=())


@dataclass(frozen=True)
class SpaceTexts:
    """Texts of random architectures of a space.

    Args:
        name: of the space.
        networks: so many, less those that are held out.
        copies: how often each of them counts.
    """

    name: str
    networks: int
    copies: float = 1.0


@dataclass(frozen=True)
class TokenizerRecipe:
    """A tokenizer's training.

    Args:
        spaces: whose texts it learns from.
        foreign: networks of `nas_rlm.data.reference_networks`, by each of torch's exporters that can write them.
        foreign_copies: how often each of them counts.
        tables: parquet tables, whose texts it learns from as well.
        vocab_size: at most this many pieces.
        longest_piece: in characters.
        held_out: share of architectures left out, by the space's key: those that tables hold out as well.
        seed: of the architectures.
    """

    spaces: tuple[SpaceTexts, ...] = ()
    foreign: tuple[str, ...] = ()
    foreign_copies: int = 1
    tables: tuple[str, ...] = ()
    vocab_size: int = 8192
    longest_piece: int = 64
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.spaces or self.foreign or self.tables):
            raise ValueError("the recipe has no texts; expected spaces, foreign networks or tables")
        for space in self.spaces:
            if space.networks < 1 or space.copies <= 0:
                raise ValueError(f"{space} is empty; expected at least 1 network and copies above 0")


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """A recipe from a YAML file, or a shipped one by name (`nas`).

    A recipe that names another one as its `base` is that one but for its own keys.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a mapping, or an unknown or malformed key.
    """
    content, path = _content(path)
    if base := content.pop("base", None):
        content = {**_content(_base(base, path))[0], **content}
        if "base" in content:
            raise ValueError(f"{path}: its base {base!r} has a base as well; expected a recipe without one")
    lists = {name: content.get(name, []) for name in ("tables", "spaces")}
    if not lists.keys() & content.keys() or not all(isinstance(v, list) for v in lists.values()):
        raise ValueError(f"{path} is no recipe of a training: expected keys such as tables, size, epochs")
    tables = tuple(_table(t, path) for t in lists["tables"])
    spaces = tuple(SpaceRecipe(**_known(SpaceRecipe, s, path)) for s in lists["spaces"])
    return Recipe(**{**_known(Recipe, content, path), "tables": tables, "spaces": spaces})


def _base(name: Any, path: Path) -> str | Path:
    """Where the base of a recipe is: shipped, or beside it."""
    if not isinstance(name, str):
        raise ValueError(f"{path}: base is {name!r}; expected the name of a recipe")
    beside = path.parent / name
    return beside if beside.is_file() else name


def _table(content: Any, path: Path) -> TableRecipe:
    given = _known(TableRecipe, content, path)
    experts = given.get("experts", [])
    if not isinstance(experts, list):
        raise ValueError(f"{path}: experts is {experts!r}; expected a list such as [accuracy, latency]")
    return TableRecipe(**{**given, "experts": tuple(map(str, experts))})


def read_tokenizer_recipe(path: str | os.PathLike[str]) -> TokenizerRecipe:
    """A tokenizer's recipe from a YAML file, or the shipped one by its name, `tokenizer`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a mapping, or an unknown or malformed key.
    """
    content, path = _content(path)
    lists = {name: content.get(name, []) for name in ("spaces", "foreign", "tables")}
    for name, value in lists.items():
        if not isinstance(value, list):
            raise ValueError(f"{path}: {name} is {value!r}; expected a list")
    spaces = tuple(SpaceTexts(**_known(SpaceTexts, s, path)) for s in lists["spaces"])
    given = {**_known(TokenizerRecipe, content, path), "spaces": spaces}
    return TokenizerRecipe(**{**given, **{k: tuple(map(str, lists[k])) for k in ("foreign", "tables")}})


def _check_counts(part: object, what: str, *names: str) -> None:
    for name in names:
        value = getattr(part, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} of {what!r} is {value!r}; expected at least 1")


def _content(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Path]:
    """What a YAML file holds, and where it is."""
    shipped = RECIPES / f"{path}.yaml"
    path = shipped if shipped.is_file() else Path(path)
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in shipped.parent.glob("*.yaml")))
        raise FileNotFoundError(f"no recipe at {str(path)!r}: expected a YAML file or one of: {known}")
    try:
        content = yaml.safe_load(read_text(path, "a recipe in YAML"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no recipe: expected keys such as tables, size, epochs")
    return content, path


def _known(kind: type, content: Any, path: Path) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{path}: {content!r} is no mapping; expected keys of {kind.__name__}")
    names = {f.name: f for f in fields(kind)}
    for key, value in content.items():
        if key not in names:
            raise ValueError(f"{path}: unknown key {key!r}; {hint(str(key), names)}")
        default = names[key].default
        if isinstance(default, float) and not isinstance(value, int | float):
            raise ValueError(f"{path}: {key} is {value!r}; expected a number such as {default}")
        if isinstance(default, int) and (not isinstance(value, int) or isinstance(value, bool)):
            raise ValueError(f"{path}: {key} is {value!r}; expected an integer such as {default}")
    for name, field in names.items():
        if field.default is MISSING and name not in content:
            raise ValueError(f"{path}: {content!r} has no {name}")
    return dict(content)
