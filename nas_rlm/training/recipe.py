"""Recipes: the YAML files that define trainings of models and tokenizers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from nas_rlm.files import RECIPES, read_text
from nas_rlm.utils.validation import suggest

FORMER_TABLE_KEYS = {"lessons": "pseudo_labels", "experts": "surrogates"}


@dataclass(frozen=True)
class TableRecipe:
    """How one table is used.

    Args:
        path: a parquet file, relative to the data directory.
        rows: training rows in an epoch, drawn anew each epoch and repeated where there are fewer; None for
            all.
        sequences: maximum of decoder sequences for a row in a step, each with other numbers.
        pseudo_labels: random networks of each space, beside the rows, with pseudo-labels from surrogates that
            are fitted to the rows, see `nas_rlm.training.distillation`; None for none.
        surrogates: kinds of objectives, such as accuracy or latency, of which surrogates are fitted to the
            rows and saved with the model, see `nas_rlm.surrogates`.
    """

    path: str
    rows: int | None = None
    sequences: int = 1
    pseudo_labels: int | None = None
    surrogates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_positive(self, self.path, "rows", "sequences", "pseudo_labels")

    def surrogate_objectives(self, objectives: Sequence[str]) -> list[str]:
        """Return those objectives of which surrogates are fitted."""
        return [name for name in objectives if name.split("/")[0] in self.surrogates]


@dataclass(frozen=True)
class SpaceRecipe:
    """How random networks of a space are used, with graph features or a teacher's predictions as targets.

    Args:
        space: name of a registered search space.
        networks: number of distinct networks.
        rows: as for a table.
        sequences: as for a table.
        teacher: a checkpoint directory or the name of a shipped model, whose predictions are the targets, see
            `nas_rlm.training.distillation.distil`; by default targets are graph features.
    """

    space: str
    networks: int
    rows: int | None = None
    sequences: int = 1
    teacher: str = ""

    def __post_init__(self) -> None:
        _check_positive(self, self.space, "networks", "rows", "sequences")

    @property
    def as_table(self) -> TableRecipe:
        """The same use of a table."""
        return TableRecipe(self.space, self.rows, self.sequences)


@dataclass(frozen=True)
class Recipe:
    """A training of a model.

    Args:
        tables: tables to train on.
        spaces: spaces of random networks to train on.
        start: a checkpoint directory or the name of a shipped model: training starts from its network, with
            its tokenizer; by default from a new network.
        size: scaling parameter of a new network, see `nas_rlm.model.network.Config`.
        statements: layers that encode each statement by itself, see `nas_rlm.model.network.Config`.
        encoder: name of a frozen pretrained encoder that replaces the encoder layers, see
            `nas_rlm.model.encoders.load`; it has its own tokenizer.
        tokenizer: path of a tokenizer, or the name of a shipped model; by default a tokenizer is trained.
        vocab_size: pieces of a trained tokenizer.
        tokenizer_texts: texts of each table that the tokenizer is trained on.
        longest_piece: maximum length of a piece in characters.
        numbers: maximum of numbers in a decoder sequence: accuracy first, then others in random order.
        epochs: number of epochs.
        batch_size: rows in a step.
        optimizer: "adamw", "adafactor" or "muon" (for matrices of the layers; AdamW for the rest).
        learning_rate: highest learning rate.
        warmup: steps of linear warm-up.
        schedule: of the learning rate after warm-up: "cosine" (to zero) or "constant".
        weight_decay: of the layers' matrices.
        clip: maximum norm of the gradient.
        ema: decay of the averaged weights, which are the ones saved.
        noise: standard deviation of the label noise in units of each objective's spread; decreases to zero in
            the course of training.
        precision: of matrix products: "float32" or "bfloat16".
        validation: fraction of architectures that is held out, by the space's key.
        by_group: hold out problems with all programs that solve them.
        validate_every: steps between validations.
        validation_rows: held-out rows of each table in a validation.
        patience: validations without a better mean Spearman correlation after which training stops; 0 for
            never.
        checkpoint_every: steps between saved states.
        seed: seed of all randomness.

    Raises:
        ValueError: a value is out of range, or there is neither a table nor a space.
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
            raise ValueError(f"precision is {self.precision!r}: expected float32 or bfloat16")
        if self.optimizer not in ("adamw", "adafactor", "muon"):
            raise ValueError(f"optimizer is {self.optimizer!r}: expected adamw, adafactor or muon")
        if self.schedule not in ("cosine", "constant"):
            raise ValueError(f"schedule is {self.schedule!r}: expected cosine or constant")
        if self.encoder and (self.start or self.tokenizer):
            raise ValueError(
                f"encoder is {self.encoder!r}, which has its own tokenizer and is new: expected neither start"
                " nor tokenizer beside it"
            )
        if not self.tables and not self.spaces:
            raise ValueError(
                "the recipe has no tables: expected a list such as [{path: nasbench201.parquet}], or spaces"
                " such as [{space: nasbench201, networks: 1000}]"
            )
        for name in (
            *("size", "epochs", "batch_size", "validate_every", "validation_rows", "checkpoint_every"),
            *("vocab_size", "tokenizer_texts", "longest_piece"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected at least 1")
        if self.numbers < 2:
            raise ValueError(f"numbers is {self.numbers}: expected at least 2, accuracy and another")
        for name in ("validation", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected a number from 0 to below 1")
        for name in ("noise", "weight_decay", "warmup", "patience", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: expected at least 0")
        for name in ("learning_rate", "clip"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: expected a number above 0")

    def for_table(self, table: str) -> Recipe:
        """Return the recipe of the same training on one of its tables.

        Args:
            table: name of the table's file without directory and suffix.

        Raises:
            ValueError: the recipe has no such table.
        """
        by_name = {Path(t.path).stem: t for t in self.tables}
        if table not in by_name:
            raise ValueError(f"the recipe has no table {table!r}; {suggest(table, by_name)}")
        return replace(self, tables=(by_name[table],), spaces=())


@dataclass(frozen=True)
class SpaceTexts:
    """Texts of random architectures of a space, for the training of a tokenizer.

    Args:
        name: name of the space.
        networks: number of architectures, before held-out ones are removed.
        copies: weight of the texts, as a number of copies of each.
    """

    name: str
    networks: int
    copies: float = 1.0


@dataclass(frozen=True)
class TokenizerRecipe:
    """A training of a tokenizer.

    Args:
        spaces: spaces of random architectures to train on.
        foreign: names of networks in `nas_rlm.data.reference_networks`, exported by each of torch's exporters
            that supports them.
        foreign_copies: copies of each of these texts.
        tables: paths of parquet tables to train on.
        vocab_size: maximum number of pieces.
        longest_piece: maximum length of a piece in characters.
        held_out: fraction of architectures that is left out, by the space's key: the same that tables hold
            out.
        seed: seed of the architectures.

    Raises:
        ValueError: there is nothing to train on, or a space has no texts.
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
            raise ValueError("the recipe has no texts: expected spaces, foreign networks or tables")
        for space in self.spaces:
            if space.networks < 1 or space.copies <= 0:
                raise ValueError(f"{space} has no texts: expected at least 1 network and copies above 0")


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe from a YAML file, or a shipped one by its name.

    A recipe with the key `base` inherits all keys of that recipe that it does not have itself.

    Args:
        path: path of the file, or a name such as `nas`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a mapping, or has an unknown, former or malformed key.
    """
    content, path = _read_yaml(path)
    if base := content.pop("base", None):
        content = {**_read_yaml(_base_path(base, path))[0], **content}
        if "base" in content:
            raise ValueError(f"{path}: its base {base!r} has a base as well: expected a recipe without one")
    lists = {name: content.get(name, []) for name in ("tables", "spaces")}
    if not lists.keys() & content.keys() or not all(isinstance(v, list) for v in lists.values()):
        raise ValueError(f"{path} is not a recipe of a training: expected keys such as tables, size, epochs")
    tables = tuple(_table_recipe(t, path) for t in lists["tables"])
    spaces = tuple(SpaceRecipe(**_check_keys(SpaceRecipe, s, path)) for s in lists["spaces"])
    return Recipe(**{**_check_keys(Recipe, content, path), "tables": tables, "spaces": spaces})


def _base_path(name: Any, path: Path) -> str | Path:
    """Return the path of a base in the same directory, or else the name of a shipped recipe."""
    if not isinstance(name, str):
        raise ValueError(f"{path}: base is {name!r}: expected the name of a recipe")
    sibling = path.parent / name
    return sibling if sibling.is_file() else name


def _table_recipe(content: Any, path: Path) -> TableRecipe:
    """Make a table's recipe from its mapping."""
    for former, present in FORMER_TABLE_KEYS.items():
        if isinstance(content, dict) and former in content:
            raise ValueError(f"{path}: the key {former!r} of a table is now called {present!r}: rename it")
    values = _check_keys(TableRecipe, content, path)
    surrogates = values.get("surrogates", [])
    if not isinstance(surrogates, list):
        raise ValueError(f"{path}: surrogates is {surrogates!r}: expected a list such as [accuracy, latency]")
    return TableRecipe(**{**values, "surrogates": tuple(map(str, surrogates))})


def read_tokenizer_recipe(path: str | os.PathLike[str]) -> TokenizerRecipe:
    """Read a tokenizer's recipe from a YAML file, or the shipped one by its name, `tokenizer`.

    Args:
        path: path of the file, or `tokenizer`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a mapping, or has an unknown or malformed key.
    """
    content, path = _read_yaml(path)
    lists = {name: content.get(name, []) for name in ("spaces", "foreign", "tables")}
    for name, value in lists.items():
        if not isinstance(value, list):
            raise ValueError(f"{path}: {name} is {value!r}: expected a list")
    spaces = tuple(SpaceTexts(**_check_keys(SpaceTexts, s, path)) for s in lists["spaces"])
    values = {**_check_keys(TokenizerRecipe, content, path), "spaces": spaces}
    return TokenizerRecipe(**{**values, **{k: tuple(map(str, lists[k])) for k in ("foreign", "tables")}})


def _check_positive(recipe: object, owner: str, *names: str) -> None:
    """Check that fields of a table's or space's recipe are positive integers or None."""
    for name in names:
        value = getattr(recipe, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} of {owner!r} is {value!r}: expected at least 1")


def _read_yaml(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Path]:
    """Return the mapping in a YAML file or a shipped recipe, and the path of the file."""
    shipped = RECIPES / f"{path}.yaml"
    path = shipped if shipped.is_file() else Path(path)
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in shipped.parent.glob("*.yaml")))
        raise FileNotFoundError(f"no recipe at {str(path)!r}: expected a YAML file or one of: {names}")
    try:
        content = yaml.safe_load(read_text(path, "a recipe in YAML"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a recipe: expected keys such as tables, size, epochs")
    return content, path


def _check_keys(kind: type, content: Any, path: Path) -> dict[str, Any]:
    """Check the keys and number types of a mapping against the fields of a dataclass, and return it."""
    if not isinstance(content, dict):
        raise ValueError(f"{path}: {content!r} is not a mapping: expected keys of {kind.__name__}")
    by_name = {f.name: f for f in fields(kind)}
    for key, value in content.items():
        if key not in by_name:
            raise ValueError(f"{path}: unknown key {key!r}; {suggest(str(key), by_name)}")
        default = by_name[key].default
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise ValueError(f"{path}: {key} is {value!r}: expected true or false")
            continue
        if isinstance(default, float) and not isinstance(value, int | float):
            raise ValueError(f"{path}: {key} is {value!r}: expected a number such as {default}")
        if isinstance(default, int) and (not isinstance(value, int) or isinstance(value, bool)):
            raise ValueError(f"{path}: {key} is {value!r}: expected an integer such as {default}")
    for name, field in by_name.items():
        if field.default is MISSING and name not in content:
            raise ValueError(f"{path}: {content!r} has no {name}")
    return dict(content)
