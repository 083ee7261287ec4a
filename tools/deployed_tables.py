"""The README's tables of latency, and of networks in the files that are shipped."""

from pathlib import Path

from otprune.report.markdown import markdown_table, measured_with
from tools.pages import Record, read


def latency(results: Path) -> str:
    """How long one image takes, pruned and unpruned, in each runtime on a CPU."""
    records = [record for path in sorted(results.glob("latency-*.json")) if _is_edge(record := read(path))]
    if not records:
        return ""
    runtimes = list(records[0]["results"]["latencies"])
    header = (_one_image(records[0]["configuration"]["threads"]), "network", "FLOPs", *runtimes)
    rows = [row for record in records for row in _latency_rows(record, runtimes)]
    pruned = "; ".join(
        f"{record['configuration']['model']} {name}: {how}"
        for record in records
        for name, how in record["results"]["pruned"].items()
    )
    return (
        "**`benchmarks/latency.py`**: milliseconds, and how many times as fast as unpruned; the networks take turns."
        f"\n\n{markdown_table(header, rows)}\n\nMedians; {measured_with(records[0]['provenance'])}. {pruned}."
    )


def latency_on_a_gpu(results: Path) -> str:
    """The same on a GPU, for one image and for many at a time."""
    found = [
        record for path in results.glob("latency-*.json") if (record := read(path))["configuration"]["device"] == "cuda"
    ]
    records = sorted(found, key=lambda record: (record["configuration"]["model"], record["configuration"]["batch"]))
    if not records:
        return ""
    runtimes = list(records[0]["results"]["latencies"])
    rows = [
        (f"{model}, batch {record['configuration']['batch']}", *cells)
        for record in records
        for model, *cells in _latency_rows(record, runtimes)
    ]
    remarks = "".join(dict.fromkeys(f" {record['remark']}" for record in records if "remark" in record))
    return (
        "**`benchmarks/latency.py --device cuda`**: the same on a GPU. It runs small networks no faster than it can "
        "start their kernels, and layers whose channels are no multiples of 16 slower than wider ones: prune with "
        "`--round-to 16`, and compile.\n\n"
        f"{markdown_table(('on a GPU', 'network', 'FLOPs', *runtimes), rows, texts=2)}\n\n"
        f"Median milliseconds; {measured_with(records[0]['provenance'])}.{remarks}"
    )


def _is_edge(record: Record) -> bool:
    return bool(_device(record) == "cpu" and record["configuration"]["batch"] == 1)


def _device(record: Record) -> str:
    device: str = record["configuration"]["device"]
    return device


def _latency_rows(record: Record, runtimes: list[str]) -> list[tuple[str, ...]]:
    found, model = record["results"], record["configuration"]["model"]
    most = max(network["flops"] for network in found["models"].values())
    return [
        (
            model,
            name,
            f"{network['flops'] / most:.1%}",
            *(_latency(found["latencies"][runtime][name]) for runtime in runtimes),
        )
        for name, network in found["models"].items()
    ]


def _latency(own: Record) -> str:
    times = f" ({own['times_faster_p50']:.2f}×)" if "times_faster_p50" in own else ""
    return f"{own['p50']:.2f}{times}"


def deployed(record: Record) -> str:
    """A trained network in the files that are shipped."""
    what, results = record["configuration"], record["results"]
    header = (_one_image(what["threads"]), "network", "test accuracy", "file", "median", "times faster")
    rows = [
        (runtime, network["name"], *_shipped(network, found["latencies"][network["name"]]))
        for runtime, found in results["runtimes"].items()
        for network in found["networks"]
    ]
    share = results["costs"]["after"]["flops"] / results["costs"]["before"]["flops"]
    made_with, run = results["versions"], results["experiment"]
    lam, rule = run["training"]["lam"], run["pruning"]["rule"].upper()
    return (
        f"**`benchmarks/deployed.py`**: {what['model']} on {what['data']}, trained with λ={lam:g}, pruned by {rule} to "
        f"{share:.1%} of the FLOPs and recalibrated, not fine-tuned; INT8 by `otprune export --int8`.\n\n"
        f"{markdown_table(header, rows, texts=2)}\n\n"
        "Accuracy is that of the file in its runtime. The unpruned network is timed with fresh weights: trained ones "
        f"may be so small that they take longer. Measured with {measured_with(record['provenance'])}, onnxruntime "
        f"{made_with['onnxruntime']}, OpenVINO {made_with['openvino']}, NNCF {made_with['nncf']}."
    )


def _one_image(threads: int) -> str:
    return f"one image on {'one thread' if threads == 1 else f'{threads} threads'}"


def _shipped(network: Record, latency: Record) -> tuple[str, ...]:
    times = f"{latency['times_faster_p50']:.2f}×" if "times_faster_p50" in latency else ""
    return (
        f"{100 * network['accuracy']:.2f} %",
        f"{network['bytes'] / 1e6:.1f} MB",
        f"{latency['p50']:.2f} ms",
        times,
    )
