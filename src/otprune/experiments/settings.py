"""From a recipe, a TOML file and flags to an experiment: each overrules the one before."""

import difflib
import tomllib
from importlib import resources
from pathlib import Path

from otprune.errors import TrainingError
from otprune.experiments.choosing import TARGETS
from otprune.experiments.experiment import Experiment
from otprune.experiments.fields import Flat, checked, flat, made
from otprune.experiments.folder import is_settled
from otprune.experiments.passed_over import passed_over, require_file_of_use, require_flags_of_use
from otprune.experiments.run_facts import configuration
from otprune.jsons import require_shallow
from otprune.reading import text_of
from otprune.training.data import CIFARS, cifar

HOLD_OUT = 0.1  # where accuracy is to choose and nothing is said about the images to choose on
FLAGS = "command line"
MOST_BYTES = 1 << 20  # of a file of settings


def resolved(flags: Flat, config: str | None = None, folder: Path | None = None) -> Experiment:
    """The experiment of some flags, over a file or recipe, over what the folder of a run has, or the data implies.

    >>> resolved({"model": "resnet20", "data": "cifar10", "training.lam": 2e-3}, config="resnet20").training
    Training(epochs=200, batch=125, rate=0.1, ...lam=0.002, ...weight_decay=0.0005, ...)
    """
    settings = said(flags, config, folder)
    if settings.get("pruning.max_drop") is not None:
        settings.setdefault("hold_out", HOLD_OUT)
    experiment = made(Experiment, settings, FLAGS if config is None else config)
    require_flags_of_use(flags, passed_over(flat(experiment.to_dict())))
    if config is not None and Path(config).is_file():
        require_file_of_use(_configuration(Path(config)), config, experiment)
    return experiment


def said(flags: Flat, config: str | None = None, folder: Path | None = None) -> Flat:
    """The settings that are said anywhere; all others are left to their defaults.

    >>> said({"model": "digits_net", "data": "digits"})
    {'training.augment': False, 'model': 'digits_net', 'data': 'digits'}
    """
    given = _over(_configured(config), checked(Experiment, flags, FLAGS))
    begun = _begun(folder, given)
    below = checked(Experiment, flat(begun.to_dict()), str(folder)) if begun else implied(given.get("data"))
    return _over(below, given)


def recipes() -> list[str]:
    """The names of the recipes.

    >>> recipes()
    ['best', 'cifar', 'digits', 'ilsvrc', 'resnet20']
    """
    return sorted(path.name.removesuffix(".toml") for path in _recipes().iterdir() if path.name.endswith(".toml"))


def recipe(name: str) -> Flat:
    """The settings of a recipe.

    >>> recipe("digits")
    {'training.augment': False}
    """
    return _parsed((_recipes() / f"{name}.toml").read_text(encoding="utf-8"), f"recipe {name}")


def implied(data: str | None) -> Flat:
    """The recipe that goes with the data: a folder of images is trained on like ILSVRC.

    >>> implied("digits"), implied("nowhere")
    ({'training.augment': False}, {})
    """
    name = implied_recipe(data)
    return {} if name is None else recipe(name)


def implied_recipe(data: str | None) -> str | None:
    """Its name; none for data that there is not.

    >>> implied_recipe("digits"), implied_recipe("nowhere")
    ('digits', None)
    """
    if data is None or data in CIFARS:
        return "cifar"
    if data == "digits":
        return "digits"
    folder = Path(data)
    if not folder.is_dir():
        return None
    return "cifar" if any(cifar.holds(files, folder) for files in CIFARS.values()) else "ilsvrc"


def _begun(folder: Path | None, given: Flat) -> Experiment | None:
    """What the folder has; a run that failed before its first step says nothing to one that is begun anew."""
    if folder is None or ({"model", "data"} <= given.keys() and not is_settled(folder)):
        return None
    return configuration(folder)


def _configured(config: str | None) -> Flat:
    if config is None:
        return {}
    path = Path(config)
    if path.is_file():
        return _configuration(path)
    if config in recipes():
        return recipe(config)
    near = difflib.get_close_matches(config, recipes(), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise TrainingError(f"{config} is neither a file nor one of the recipes {', '.join(recipes())}{hint}")


def _configuration(path: Path) -> Flat:
    try:
        text = text_of(path, MOST_BYTES)
    except ValueError as error:
        raise TrainingError(f"{path}: is not TOML: {error}. Write settings as in docs/recipes.md.") from error
    return _parsed(text, str(path))


def _parsed(text: str, where: str) -> Flat:
    try:
        tables = tomllib.loads(text)
        require_shallow(tables)
    except (ValueError, RecursionError) as error:
        raise TrainingError(f"{where}: is not TOML: {error}. Write settings as in docs/recipes.md.") from error
    return checked(Experiment, flat(tables), where)


def _over(below: Flat, above: Flat) -> Flat:
    """What is above wins; a target replaces another one, since pruning meets one of them."""
    targets = {f"pruning.{target}" for target in TARGETS}
    if any(above.get(target) is not None for target in targets):
        below = {name: value for name, value in below.items() if name not in targets}
    return below | above


def _recipes() -> resources.abc.Traversable:
    return resources.files(__package__) / "recipes"
