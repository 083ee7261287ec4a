"""Several runs of which some fail: those are set aside, and the others go on, unless processes train them together."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch

from otprune.errors import OtpruneError
from otprune.training import distributed

Member = TypeVar("Member")


class RunsFailed(OtpruneError):
    """Some of several runs failed, and the others went to their end; `errors` has who failed, and of what.

    >>> str(RunsFailed([("a", OtpruneError("a diverged")), ("b", OtpruneError("b diverged"))]))
    'a diverged\\nb diverged'
    """

    def __init__(self, errors: Sequence[tuple[Any, OtpruneError]]) -> None:
        super().__init__("\n".join(_with_its_folder(member, error) for member, error in errors))
        self.errors = list(errors)

    def others(self, members: Sequence[Member]) -> list[Member]:
        """Those that did not fail.

        >>> a, b = object(), object()
        >>> RunsFailed([(a, OtpruneError())]).others([a, b]) == [b]
        True
        """
        return _without(self.errors, members)


class SetAside(Generic[Member]):
    """Who goes on and who has failed.

    >>> def invert(numbers: list[int]) -> None:
    ...     if not numbers[0]:
    ...         raise OtpruneError("there is no 1/0")
    ...     numbers[0] = 1 // numbers[0]
    >>> all_of_them = [[1], [0]]
    >>> aside = SetAside(all_of_them)
    >>> aside.each(invert)
    >>> aside.others()
    [[1]]
    >>> aside.end()
    Traceback (most recent call last):
        ...
    otprune.training.failures.RunsFailed: there is no 1/0
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self.errors: list[tuple[Member, OtpruneError]] = []

    def others(self, among: Sequence[Member] | None = None) -> list[Member]:
        """Those that have not failed, of all or of some."""
        return _without(self.errors, self._members if among is None else among)

    def each(self, do: Callable[[Member], object], among: Sequence[Member] | None = None) -> None:
        """Do something with each of those that have not failed, which it may fail at."""
        for member in self.others(among):
            try:
                do(member)
            except OtpruneError as error:
                self._set_aside([(member, error)])

    def at_once(self, do: Callable[[list[Member]], object], among: Sequence[Member] | None = None) -> None:
        """Do something with all of those that have not failed, which says by `RunsFailed` who failed at it."""
        others = self.others(among)
        try:
            do(others)
        except RunsFailed as failed:
            self._set_aside(failed.errors)
        except OtpruneError as error:
            if len(others) != 1:
                raise
            self._set_aside([(others[0], error)])

    def _set_aside(self, errors: Sequence[tuple[Member, OtpruneError]]) -> None:
        self.errors += errors
        for _, error in errors:
            _let_go_of_frames(error)
        if distributed.current() is not None:
            self.end()  # it may have gone wrong in this process alone, and the others would wait for it

    def end(self) -> None:
        """Raise what has gone wrong: for a single member its error itself."""
        if self.errors:
            raise self.errors[0][1] if len(self._members) == 1 else RunsFailed(self.errors)


def _let_go_of_frames(error: BaseException | None) -> None:
    """An error that is kept to be told at the end would keep what was going on then: runs, and memory of a GPU."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def of_the_system(problem: OSError) -> str:
    """What the system says of a file, without its number, which says nothing to most.

    >>> of_the_system(OSError(28, "No space left on device", "disk/file"))
    'disk/file: no space left on device'
    """
    if problem.filename is None or problem.strerror is None:
        return str(problem)
    return f"{problem.filename}: {problem.strerror[:1].lower()}{problem.strerror[1:]}"


def in_one_line(error: Exception, short_of_memory: str) -> str:
    """What went wrong; an error that is not otprune's own says little without its class, and one of a GPU no way out.

    >>> in_one_line(OtpruneError("it diverged"), ""), in_one_line(RuntimeError("cuDNN\\nat line 5"), "")
    ('it diverged', 'RuntimeError: cuDNN')
    """
    if isinstance(error, OtpruneError):
        return str(error)
    text = f"{type(error).__name__}: {first_line(error)}"
    return f"{text} {short_of_memory}" if isinstance(error, torch.OutOfMemoryError) else text


def first_line(error: Exception) -> str:
    """What an error says, without what others add to it; its class where it says nothing.

    >>> first_line(RuntimeError("no node\\nat all")), first_line(KeyError())
    ('no node', 'KeyError')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _without(errors: Sequence[tuple[Any, OtpruneError]], members: Sequence[Member]) -> list[Member]:
    failed = {id(member) for member, _ in errors}
    return [member for member in members if id(member) not in failed]


def _with_its_folder(member: Any, error: OtpruneError) -> str:
    """Which of several runs it is, where the error does not say so itself."""
    folder, text = getattr(member, "folder", None), str(error)
    return text if folder is None or str(folder) in text else f"{folder}: {text}"
