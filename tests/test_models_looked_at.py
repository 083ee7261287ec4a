"""The model is looked at before it is trained: it must give a score for each class, and is left as it was."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests import small_runs
from tests.command_line import run_here

SEVEN_CLASSES = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 7))
"""
A_DICT = """
from torch import nn

class build(nn.Conv2d):
    def __init__(self):
        super().__init__(1, 4, 3)

    def forward(self, x):
        return {"scores": super().forward(x)}
"""
AUXILIARY = """
from torch import nn

class build(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 8), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten())
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        found = self.body(x)
        return (self.head(found), found) if self.training else self.head(found)
"""
WRONG_NETS = {
    SEVEN_CLASSES: "net.py:build returns scores of shape (1, 7) for one image, and the data has 10 classes: ",
    A_DICT: "net.py:build returns a dict, and a classifier is trained by a tensor of scores",
    AUXILIARY: "net.py:build returns a tuple in training mode, and a classifier is trained by a tensor of scores: ",
}


@pytest.mark.parametrize(
    ("text", "message"), WRONG_NETS.items(), ids=["too few classes", "no tensor", "more in training"]
)
def test_a_model_that_gives_no_score_for_each_class_is_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(text)
    done = run_here("train", model="net.py:build", data="digits", out=tmp_path / "run")
    assert done.code == 1 and done.err.startswith(message)
    assert not (tmp_path / "run").exists()


def test_looking_at_a_model_in_training_mode_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that is always the same one, and whose training mode draws random numbers."""
    model = nn.Sequential(nn.Conv2d(1, 4, 8), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4, 10))
    monkeypatch.setattr("tests.small_runs.net", lambda: model)
    before, drawn = {name: tensor.clone() for name, tensor in model.state_dict().items()}, torch.get_rng_state()
    small_runs.pipeline(tmp_path)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), drawn)
