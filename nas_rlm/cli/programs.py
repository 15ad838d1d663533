"""Checks of programs on a command line: whether model, space, language and source fit each other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nas_rlm.programs.languages import LANGUAGES, language_of_file, other_language
from nas_rlm.programs.source import language_of_space, python_error
from nas_rlm.programs.triton_inputs import contradiction
from search_spaces.wording import counted

if TYPE_CHECKING:
    from nas_rlm.data.tables import Row
    from nas_rlm.model.checkpoint import TrainedOn
    from nas_rlm.surrogates.registry import Surrogate


def check_programs(
    trained_on: Mapping[str, TrainedOn],
    files: Sequence[Path],
    texts: Sequence[str],
    spaces: Sequence[str],
    objectives: Sequence[str],
) -> None:
    """Refuse objectives that a program's space does not have but another one has, and warn of doubtful files.

    Args:
        trained_on: what the model has learnt.
        files: N files, of programs and of networks.
        texts: their sources, or texts of networks.
        spaces: the space as part of which each is predicted.
        objectives: objectives to predict.

    Raises:
        ValueError: the model has learnt an objective for the program's language in another space alone.

    Warns:
        UserWarning: files are predicted as part of several spaces, a file is in another language than its
            space or its ending says, or is not Python 3, or the first line of a kernel contradicts its
            inputs.
    """
    languages = [language_of_file(file) for file in files]
    for file, language, space in zip(files, languages, spaces, strict=True):
        known = trained_on[space].objectives if space in trained_on else ()
        for name in objectives if space and language else ():
            others = [
                other
                for other, learnt in trained_on.items()
                if name in learnt.objectives and language_of_space(other) == language
            ]
            if others and name not in known:
                raise ValueError(
                    f"{file} is predicted as part of {space}, for which the model has not learnt {name}:"
                    f" give --space {others[0]} to predict it as part of that space"
                )
    if len(set(spaces)) > 1:
        _warn_of_several_spaces(files, spaces, objectives[0])
    for file, text, language, space in zip(files, texts, languages, spaces, strict=True):
        expected = language_of_space(space)
        if language and expected and language != expected:
            warnings.warn(
                f"{file} is in {language}, and the programs of {space} are in {expected}: predictions are"
                " unreliable",
                stacklevel=3,
            )
        if language and (reason := _contradicted_language(text, language)):
            warnings.warn(f"{file} is not {reason}: predictions are unreliable", stacklevel=3)
        if language == "Python":
            warn_of_contradiction(file, text, "it is predicted with those of the first line")


def warn_of_configurations(
    surrogates: Mapping[str, Sequence[Surrogate]], space: str, sources: Sequence[str]
) -> None:
    """Warn of programs that differ only in numbers and words, of which the model has learnt none like them.

    Args:
        surrogates: those of the model, by space.
        space: the space as part of which the programs are predicted.
        sources: their sources.

    Warns:
        UserWarning: the programs are such.
    """
    from nas_rlm.surrogates.configurations.surrogate import ConfigurationSurrogate
    from nas_rlm.surrogates.configurations.text import differ_in_numbers_only

    is_learnt = any(isinstance(found, ConfigurationSurrogate) for found in surrogates.get(space, ()))
    if not is_learnt and differ_in_numbers_only(sources):
        warnings.warn(
            f"the {len(sources)} programs differ only in numbers and words, which the model has not learnt:"
            " their order says little. Measure at least 10 of them (nas-rlm measure), and learn these"
            " (nas-rlm finetune)",
            stacklevel=3,
        )


def warn_of_contradicted_languages(rows: Sequence[Row]) -> None:
    """Warn of programs of a table whose content is clearly in another language than their space says.

    Args:
        rows: rows with programs; the language is the part of the space after the slash.

    Warns:
        UserWarning: there are such programs.
    """
    contradicted = []
    for row in rows:
        language = row.space.partition("/")[2]
        if language in LANGUAGES.values() and (reason := _contradicted_language(row.input, language)):
            contradicted.append(f"{row.identifier} is not {reason}")
    if contradicted:
        more = f" and {counted(len(contradicted) - 1, 'other')}" if len(contradicted) > 1 else ""
        warnings.warn(
            f"programs in another language than the column says: {contradicted[0]}{more}", stacklevel=3
        )


def _contradicted_language(source: str, language: str) -> str:
    """Return the language that a source is not in, and why; empty if it may be in it.

    Args:
        source: the source.
        language: the language that its file's ending says, or as which it was recognised.
    """
    if language == "Python" and (error := python_error(source)):
        return f"Python 3 ({error})"
    other = other_language(source, language)
    return f"{language} (its content is {other})" if other else ""


def warn_of_contradiction(file: Path, source: str, consequence: str) -> None:
    """Warn where the first line of a Triton kernel contradicts its inputs.

    Args:
        file: the kernel's file.
        source: its source.
        consequence: what follows from it.

    Warns:
        UserWarning: it does.
    """
    if reason := contradiction(source):
        warnings.warn(f"{file}: {reason}; {consequence}", stacklevel=3)


def _warn_of_several_spaces(files: Sequence[Path], spaces: Sequence[str], objective: str) -> None:
    """Warn that numbers of several spaces may differ in meaning, and name a file of each."""
    described = []
    for space in dict.fromkeys(spaces):
        own = [str(file) for file, other in zip(files, spaces, strict=True) if other == space]
        others = f" and {len(own) - 1} more" if len(own) > 1 else ""
        described.append(f"{own[0]}{others} as part of {space or 'no space'}")
    warnings.warn(f"{', '.join(described)}: {objective} may have a different meaning in each", stacklevel=4)
