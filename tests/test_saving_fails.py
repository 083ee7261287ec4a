"""Where saving fails, the old files stay whole."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import otprune as ot
from otprune.errors import CheckpointError
from tests.toy_nets import Sequential, make
from tests.unchanged import unchanged


class TestSavingFails:
    def test_in_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        model = make(Sequential)
        with unchanged(model), pytest.raises(CheckpointError, match=r"there is no folder .*nowhere; make it first"):
            ot.save(model, tmp_path / "nowhere" / "model.safetensors")
        assert list(tmp_path.iterdir()) == []

    def test_over_a_folder(self, tmp_path: Path) -> None:
        target = tmp_path / "folder"
        target.mkdir()
        with pytest.raises(OSError, match="folder"):
            ot.save(make(Sequential), target)
        assert list(tmp_path.iterdir()) == [target]

    def test_when_the_disk_is_full_the_old_files_stay_whole(self, tmp_path: Path) -> None:
        """A limit on the size of files stands for the full disk: the write breaks off in the middle."""
        old = {tmp_path / "model": b"the old model", tmp_path / "plan": b"the old plan"}
        for path, content in old.items():
            path.write_bytes(content)
        done = subprocess.run(
            [sys.executable, "-B", "-c", textwrap.dedent(SAVES_ON_A_FULL_DISK), *map(str, old)],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == ["EFBIG", "EFBIG"], done.stderr
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == old


SAVES_ON_A_FULL_DISK = """
    import errno, resource, signal, sys
    import otprune as ot
    from tests.toy_nets import Sequential, make

    model = make(Sequential)
    plan = ot.plan(model, model.example())
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
    for save in (lambda: ot.save(model, sys.argv[1]), lambda: plan.save(sys.argv[2])):
        try:
            save()
        except OSError as error:
            print(errno.errorcode[error.errno])
"""
