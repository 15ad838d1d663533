"""Recipes: the YAML files that define trainings of models and tokenizers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import Field, StrictBool, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from nas_rlm.files import RECIPES, read_text
from nas_rlm.utils.schema import (
    NO_OTHER_KEYS,
    Fraction,
    Int,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    message,
)
from nas_rlm.utils.validation import suggest

Parsed = TypeVar("Parsed")

FORMER_TABLE_KEYS = {"lessons": "pseudo_labels", "experts": "surrogates"}


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class TableRecipe:
    """Settings of one table in a training.

    Args:
        path: path of the parquet file, relative to the data directory.
        rows: number of training rows in an epoch, drawn anew each epoch and repeated if there are fewer; None
            for all.
        sequences: maximum number of decoder sequences of a row in a step, each with other numbers.
        pseudo_labels: number of additional random networks of each space, with pseudo-labels from surrogates
            that are fitted to the rows, see `nas_rlm.training.distillation`; None for none.
        surrogates: kinds of objectives, such as accuracy or latency, for which surrogates are fitted to the
            rows and saved with the model, see `nas_rlm.surrogates`.
    """

    path: str
    rows: PositiveInt | None = None
    sequences: PositiveInt = 1
    pseudo_labels: PositiveInt | None = None
    surrogates: tuple[str, ...] = ()

    def surrogate_objectives(self, objectives: Sequence[str]) -> list[str]:
        """Return those of the objectives for which surrogates are fitted."""
        return [name for name in objectives if name.split("/")[0] in self.surrogates]


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class SpaceRecipe:
    """Settings of random networks of one space in a training.

    Args:
        space: name of a registered search space.
        networks: number of distinct networks.
        rows: as for a table.
        sequences: as for a table.
        teacher: a checkpoint directory or the name of a shipped model, whose predictions are the targets, see
            `nas_rlm.training.distillation.distil`; by default the targets are graph features.
    """

    space: str
    networks: PositiveInt
    rows: PositiveInt | None = None
    sequences: PositiveInt = 1
    teacher: str = ""

    @property
    def as_table(self) -> TableRecipe:
        """The same settings for a table."""
        return TableRecipe(self.space, self.rows, self.sequences)


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class Recipe:
    """Settings of a model's training.

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
        vocab_size: number of pieces (tokens) of a trained tokenizer.
        tokenizer_texts: number of texts of each table that the tokenizer is trained on.
        longest_piece: maximum length of a piece in characters.
        numbers: maximum number of numbers in a decoder sequence: accuracy first, then others in random order.
        epochs: number of epochs; 0 to keep the network and the surrogates of `start`, and add the
            surrogates of the tables.
        batch_size: number of rows in a step.
        optimizer: "adamw", "adafactor" or "muon" (for matrices of the layers; AdamW for the rest).
        learning_rate: maximum learning rate.
        warmup: number of steps of linear warm-up.
        schedule: learning rate schedule after warm-up: "cosine" (to zero) or "constant".
        weight_decay: weight decay of the layers' matrices.
        clip: maximum norm of the gradient.
        ema: decay of the averaged weights, which are the ones saved.
        noise: standard deviation of the label noise in units of each objective's spread; decreases to zero in
            the course of training.
        precision: precision of matrix products: "float32" or "bfloat16". A CPU without instructions for
            bfloat16 multiplies in float32.
        validation: fraction of the architectures that is held out, half for validation and half for a test.
        by_group: hold out problems with all programs that solve them.
        validate_every: number of steps between validations.
        validation_rows: maximum number of held-out rows of each table in a validation.
        patience: number of validations without a better mean Spearman correlation after which training stops;
            0 for never.
        checkpoint_every: number of steps between saved states.
        seed: seed of all randomness.

    Raises:
        ValueError: a value is out of range, or there is neither a table nor a space.
    """

    tables: tuple[TableRecipe, ...] = ()
    spaces: tuple[SpaceRecipe, ...] = ()
    start: str = ""
    size: PositiveInt = 4
    statements: NonNegativeInt = 0
    encoder: str = ""
    tokenizer: str = ""
    vocab_size: PositiveInt = 8192
    tokenizer_texts: PositiveInt = 4000
    longest_piece: PositiveInt = 64
    numbers: Annotated[Int, Field(ge=2)] = 6
    epochs: NonNegativeInt = 6
    batch_size: PositiveInt = 64
    optimizer: Literal["adamw", "adafactor", "muon"] = "adamw"
    learning_rate: PositiveFloat = 2e-3
    warmup: NonNegativeInt = 200
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: NonNegativeFloat = 0.05
    clip: PositiveFloat = 1.0
    ema: Fraction = 0.999
    noise: NonNegativeFloat = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    validation: Fraction = 0.1
    by_group: StrictBool = False
    validate_every: PositiveInt = 500
    validation_rows: PositiveInt = 500
    patience: NonNegativeInt = 0
    checkpoint_every: PositiveInt = 250
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.encoder and (self.start or self.tokenizer):
            raise ValueError(
                f"encoder is {self.encoder!r}, which has its own tokenizer and is new: expected neither start"
                " nor tokenizer beside it"
            )
        if not self.epochs and not self.start:
            raise ValueError("epochs is 0: expected at least 1, or the model to start from")
        if not self.tables and not self.spaces:
            raise ValueError(
                "the recipe has no tables: expected a list such as [{path: nasbench201.parquet}], or spaces"
                " such as [{space: nasbench201, networks: 1000}]"
            )
        return self

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


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class SpaceTexts:
    """Settings of random architectures of one space in the training of a tokenizer.

    Args:
        name: name of the space.
        networks: number of architectures, before held-out ones are removed.
        copies: weight of the texts: the number of copies of each, which may be fractional.
    """

    name: str
    networks: PositiveInt
    copies: PositiveFloat = 1.0


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class TokenizerRecipe:
    """Settings of a tokenizer's training.

    Args:
        spaces: spaces of random architectures to train on.
        foreign: names of networks in `nas_rlm.data.reference_networks`, exported by each of torch's exporters
            that supports them.
        foreign_copies: number of copies of each of their texts.
        tables: paths of parquet tables to train on.
        vocab_size: maximum number of pieces.
        longest_piece: maximum length of a piece in characters.
        held_out: fraction of the architectures that is left out: those that a split of a table holds out.
        seed: seed of the architectures.

    Raises:
        ValueError: a value is out of range, or there is nothing to train on.
    """

    spaces: tuple[SpaceTexts, ...] = ()
    foreign: tuple[str, ...] = ()
    foreign_copies: PositiveInt = 1
    tables: tuple[str, ...] = ()
    vocab_size: PositiveInt = 8192
    longest_piece: PositiveInt = 64
    held_out: Fraction = 0.1
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.spaces or self.foreign or self.tables):
            raise ValueError("the recipe has no texts: expected spaces, foreign networks or tables")
        return self


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
    if not {"tables", "spaces"} & content.keys():
        raise ValueError(f"{path} is not a recipe of a training: expected keys such as tables, size, epochs")
    _check_former_keys(content.get("tables"), path)
    return _parse(Recipe, (TableRecipe, SpaceRecipe), content, path)


def _base_path(name: Any, path: Path) -> str | Path:
    """Return the path of a base recipe in the directory of `path`, or else the name of a shipped recipe."""
    if not isinstance(name, str):
        raise ValueError(f"{path}: base is {name!r}: expected the name of a recipe")
    sibling = path.parent / name
    return sibling if sibling.is_file() else name


def _check_former_keys(tables: Any, path: Path) -> None:
    """Check that no table has a key that is renamed in this version."""
    for table in tables if isinstance(tables, list) else ():
        for former, present in FORMER_TABLE_KEYS.items():
            if isinstance(table, dict) and former in table:
                raise ValueError(
                    f"{path}: the key {former!r} of a table is now called {present!r}: rename it"
                )


def read_tokenizer_recipe(path: str | os.PathLike[str]) -> TokenizerRecipe:
    """Read a tokenizer's recipe from a YAML file, or the shipped one by its name, `tokenizer`.

    Args:
        path: path of the file, or `tokenizer`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a mapping, or has an unknown or malformed key.
    """
    content, path = _read_yaml(path)
    return _parse(TokenizerRecipe, (SpaceTexts,), content, path)


def _parse(kind: type[Parsed], parts: Sequence[type], content: dict[str, Any], path: Path) -> Parsed:
    """Return the recipe that a mapping describes.

    Args:
        kind: class of the recipe.
        parts: classes of the mappings in it.
        content: content of the file.
        path: path of the file, for error messages.
    """
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        names = [field.name for part in (kind, *parts) for field in fields(part)]
        raise ValueError(f"{path}: {message(error, names)}") from None


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
