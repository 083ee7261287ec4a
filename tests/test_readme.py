"""The README's numbers are those of the records, and its code runs as it stands there."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from otprune.models import digits_net
from tools.readme_tables import BEGIN, END, ROOT, filled

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_results_are_up_to_date_with_the_records() -> None:
    assert filled(README, ROOT / "results") == README


def test_results_follow_the_records(tmp_path: Path) -> None:
    record = json.loads((ROOT / "results" / "demo.json").read_text(encoding="utf-8"))
    record["results"]["rows"][0]["flops"] = 123_456_789
    (tmp_path / "demo.json").write_text(json.dumps(record), encoding="utf-8")
    assert "123,456,789" in filled(README, tmp_path)


def test_latencies_on_a_gpu_stand_by_batch_and_remarks_are_said_once(tmp_path: Path) -> None:
    for batch in (256, 1):
        times = {"unpruned": {"p50": 2.0 * batch}, "small": {"p50": 1.0 * batch, "times_faster_p50": 2.0}}
        found = {"models": {"unpruned": {"flops": 100}, "small": {"flops": 25}}, "latencies": {"torch": times}}
        settings = {"model": "net", "device": "cuda", "batch": batch}
        hardware = {"torch": "2.11.0", "python": "3.12.3", "gpu": "a GPU", "cpu": "a processor", "cores": 1}
        content = {"configuration": settings, "results": found, "provenance": hardware, "remark": "It was busy."}
        (tmp_path / f"latency-net-cuda-{batch}.json").write_text(json.dumps(content), encoding="utf-8")
    text = filled(README, tmp_path)
    small = ["| net, batch 1 | small | 25.0% | 1.00 (2.00×) |", "| net, batch 256 | small | 25.0% | 256.00 (2.00×) |"]
    assert [line for line in text.splitlines() if "small |" in line] == small
    assert text.count("It was busy.") == 1 and "one image on" not in text


def test_a_readme_without_its_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="marks"):
        filled(README.replace(BEGIN, "").replace(END, ""), ROOT / "results")


def test_the_code_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    model = digits_net()
    names = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "example": torch.randn(1, 1, 8, 8),
        "loader": [torch.randn(8, 1, 8, 8)],
        "MyNet": digits_net,
        "train_images": (pictures := TensorDataset(torch.rand(6, 1, 8, 8), torch.arange(6) % 2)),
        "test_images": pictures,
    }
    assert len(code) == 2
    for block in code:
        exec(block, names)
    assert (tmp_path / "small.safetensors").exists()
    assert type(names["small"]) is type(model)
