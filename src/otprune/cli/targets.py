"""Files that a verb is to write at its end: whether they can be written is found out at its beginning."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otprune.errors import OtpruneError
from otprune.experiments.claiming import require_no_file_of_a_run
from otprune.files import neighbour


def require_target(path: Path, suffix: str) -> None:
    """Refuse a file that cannot be written, before the work is done that it is for; a folder that is missing is made.

    So is one of another kind that is there, which may be somebody's work, and one that a run needs.

    >>> require_target(Path("."), ".html")
    Traceback (most recent call last):
        ...
    otprune.errors.OtpruneError: .: is a folder: name the file to write
    """
    with told_as(path, "nothing was done yet. Mend this, or name another file."):
        if path.is_dir():
            raise OtpruneError(f"{path}: is a folder: name the file to write")
        if path.exists() and path.suffix != suffix:
            raise OtpruneError(f"{path}: is there, and no {suffix} that could be written anew: name another file")
        require_no_file_of_a_run(path)
        if taken := [folder for folder in path.parents if folder.exists() and not folder.is_dir()]:
            raise OtpruneError(f"{path}: cannot be written, since {taken[0]} is no folder: name another file")
        path.parent.mkdir(parents=True, exist_ok=True)
        tried = neighbour(path)  # which it is written to first
        tried.touch(exist_ok=False)
        tried.unlink()


@contextmanager
def told_as(path: Path, consequence: str) -> Iterator[None]:
    """An error of the system while a file is written says what that means, besides what is wrong.

    >>> with told_as(Path("x.json"), "the table above is all that is kept."):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
        ...
    otprune.errors.OtpruneError: x.json: cannot be written (No space left on device): the table above is all that ...
    """
    try:
        yield
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise OtpruneError(f"{path}: cannot be written ({why}): {consequence}") from problem
