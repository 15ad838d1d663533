"""Checks before a prediction: what cannot be predicted is refused, what is unreliable gives a warning."""

from __future__ import annotations

from collections.abc import Sequence

import search_spaces
from nas_rlm.data.objective_kinds import ACCURACY, depends_on_task, is_accuracy
from nas_rlm.surrogates.ensemble.selection import SurrogateSelection
from nas_rlm.surrogates.predictive import WITHOUT_NETWORK
from nas_rlm.surrogates.registry import NoveltyWarning
from nas_rlm.text.declarations import reads_images, reads_tokens
from nas_rlm.utils.validation import listed, suggest
from search_spaces import LANGUAGE_MODELLING


def check_name_of_space(selection: SurrogateSelection, space: str) -> None:
    """Check the name of a space.

    Args:
        selection: the surrogates of a model.
        space: name of the space; empty for networks without a space.

    Raises:
        ValueError: neither the model nor `search_spaces` has the space.
    """
    names = dict.fromkeys([*selection.trained_on, *search_spaces.names()])
    if space and space not in names:
        raise ValueError(f"there is no space {space!r}; {suggest(space, names)}")


def check_task(
    selection: SurrogateSelection,
    space: str,
    objectives: Sequence[str],
    texts: Sequence[str] = (),
    task: str = "",
) -> None:
    """Refuse objectives of training, such as accuracies, that were learnt for another task.

    Args:
        selection: the surrogates of a model.
        space: name of the space; empty if it is unknown.
        objectives: names of the objectives to predict.
        texts: texts of networks; those that read token ids are language models.
        task: task of the space; by default that of the known space of this name.

    Raises:
        ValueError: the model learnt an objective for another task alone, for spaces of language models
            while the network is one of no space, or from networks that read images while one reads none.
    """
    is_language_model = any(map(reads_tokens, texts))
    task = LANGUAGE_MODELLING if is_language_model else task or selection.task_of(space)
    for name in filter(depends_on_task, objectives if task else ()):
        labels = [name, ACCURACY] if is_accuracy(name) else [name]
        learnt = {other for label in labels for other in _spaces_with(selection, label)}
        tasks = {selection.task_of(other) for other in (learnt & {space} or learnt)}
        if tasks and not tasks & {"", task}:
            raise ValueError(
                f"{name} cannot be predicted for {task}: the model learnt it for"
                f" {', '.join(sorted(tasks))} alone. Costs and"
                " latencies can be, or fine-tune the model on labels of your own"
            )
        if is_language_model and not space and learnt and "" not in learnt:
            raise ValueError(
                f"{name} cannot be predicted for a network of no space that reads token ids or other indices:"
                " name a space of language models, or fine-tune the model on labels of your own. Costs and"
                " latencies can be"
            )
    _check_images(selection, space, objectives, texts)


def _check_images(
    selection: SurrogateSelection, space: str, objectives: Sequence[str], texts: Sequence[str]
) -> None:
    """Refuse accuracies on images for networks that read none."""
    sizes = selection.labelled_sizes(space, objectives)
    for name, of_labelled in sizes.items():
        if is_accuracy(name) and of_labelled.min_side and not all(map(reads_images, texts)):
            raise ValueError(
                f"{name} cannot be predicted for a network that reads no images: the model learnt it for"
                f" images of {of_labelled.min_side} to {of_labelled.max_side} pixels alone. Costs and"
                " latencies can be, or fine-tune the model on labels of your own"
            )


def check_surrogates(selection: SurrogateSelection, space: str, objectives: Sequence[str]) -> None:
    """Refuse objectives that the network has not learnt, where no surrogate predicts them.

    Args:
        selection: the surrogates of a model.
        space: name of the space; empty for networks without a space.
        objectives: names of the objectives to predict.

    Raises:
        ValueError: an objective was learnt by surrogates of other spaces alone.
    """
    known = selection.by_objective(space)
    for name in objectives:
        found = {
            other: surrogate.network_temperatures.get(name, 1.0)
            for other, group in selection.surrogates.items()
            for surrogate in group
            if name in surrogate.objectives
        }
        if name not in known and found and min(found.values()) >= WITHOUT_NETWORK:
            raise ValueError(
                f"{name} cannot be predicted for {space or 'networks without a space'}: the model"
                f" learnt it for {listed(sorted(filter(None, found))) or 'other texts'} alone"
            )


def reliability_warnings(
    selection: SurrogateSelection, space: str, objectives: Sequence[str]
) -> list[UserWarning]:
    """Return warnings of predictions that are unreliable in a space, or without one.

    Args:
        selection: the surrogates of a model.
        space: name of the space; empty for networks without a space.
        objectives: names of the objectives to predict.

    Returns:
        A `NoveltyWarning` for each latency that is a sum of costs which other networks determine, and a
        `UserWarning` if the model was not trained on other objectives, or if no space is named.
    """
    learnt = selection.learnt_by_surrogates(space)
    if not space:
        message = "no space is named: predictions for networks unlike the training data are unreliable"
        return [] if set(objectives) <= learnt else [UserWarning(message)]
    known = learnt.union(selection.trained_objectives(space), selection.transferred(space, objectives))
    untrained = [name for name in objectives if name not in known]
    sources = _sources_of_sums(selection, space)
    found: list[UserWarning] = [
        NoveltyWarning(
            f"{name} was learnt from {sources[name]} alone: for {space} it is a sum of the costs of"
            " layers, and its intervals are widened"
        )
        for name in untrained
        if name in sources
    ]
    untrained = [name for name in untrained if name not in sources]
    if selection.trained_on and untrained:
        found.append(
            UserWarning(
                f"the model was not trained on {', '.join(untrained)} of {space}: predictions are unreliable,"
                " fine-tune it on your own measurements"
            )
        )
    return found


def _spaces_with(selection: SurrogateSelection, objective: str) -> list[str]:
    """Return the spaces in which a model learnt an objective."""
    trained = [space for space, own in selection.trained_on.items() if objective in own.objectives]
    with_surrogate = [
        space
        for space, group in selection.surrogates.items()
        if any(objective in surrogate.objectives for surrogate in group)
    ]
    return [*trained, *with_surrogate]


def _sources_of_sums(selection: SurrogateSelection, space: str) -> dict[str, str]:
    """Return for each latency that sums of costs of other networks predict what these networks are."""
    return {
        surrogate.objective: f"networks of {other}" if other else "networks without a space"
        for other, group in selection.sums_of_costs(space).items()
        for surrogate in group
    }
