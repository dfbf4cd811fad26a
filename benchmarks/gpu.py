"""What the default and the deep bases do on a GPU: the lines that say whether a continent is an afternoon's work.

    python -m benchmarks.gpu [--device cuda] [--quick] [--out gpu.json]

A map of the default field (pixels a second, seconds for 10^8), maps of two deep bases, 400 epochs of 413,000 rows (h 256, r
1,024), of which as many steps are taken as show a step's time, and fits of the default. `--device cpu --quick` shows that it runs.
"""

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import geogp  # before torch: sets how OpenMP waits

assert geogp
import torch  # noqa: E402

from benchmarks import machine, sizes, timings  # noqa: E402
from benchmarks.tables import markdown  # noqa: E402
from geogp.basis.objectives import Weights  # noqa: E402
from geogp.basis.schedule import Schedule  # noqa: E402
from geogp.basis.train import Training, minibatch  # noqa: E402
from geogp.linalg.precision import PRECISIONS  # noqa: E402
from geogp.methods import method  # noqa: E402

ROWS, EPOCHS, PIXELS = 413_000, 400, 10**8
HEADER = ("what", "a second", "of", "seconds")


def default_map(device: str, quick: bool) -> list[timings.Row]:
    """Pixels of the default field where they are finer than places, as on a map of tiles."""
    found = []
    for what, field, side_m, visits in timings.grid_fields(device, quick):
        pixels = timings.pixels_of(side_m, 125, visits, most=60 if quick else 2000)
        told = machine.synced(partial(field.moments, pixels), device)
        told()
        started = time.perf_counter()
        told()
        rate = len(pixels) / (time.perf_counter() - started)
        found.append(_row(f"default, {what}", rate, f"{PIXELS:,} pixels", PIXELS))
    return found


def deep_maps(device: str, quick: bool) -> list[timings.Row]:
    """Pixels of deep bases."""
    found = timings.prediction(device, quick)
    return [_row(f"{r['what']}, r {r['r']:,}", r["pixels/s"], f"{PIXELS:,} pixels", PIXELS) for r in found]


def training(device: str, quick: bool) -> list[timings.Row]:
    """A long training, by the epochs of some of its rows."""
    hidden, rank, rows = (32, 32, 4096) if quick else (256, 1024, 2**17)
    found = []
    for precision, batch in [(precision, size) for size in (1024, 4096) for precision in PRECISIONS]:
        data = timings.map_data(rows, device)
        model = timings.deep_basis("dbk-silu", hidden, rank, data, device).train()
        loss = minibatch(model, method("dbk-silu").objective, Weights(), rows)
        schedule = Schedule(epochs=EPOCHS, precision=precision, batch_size=batch)
        running = Training(model, data, loss, schedule, 0)
        epoch = machine.synced(running.run_epoch, device)
        epoch()
        started = time.perf_counter()
        epoch()
        rate = rows / (time.perf_counter() - started)
        what = f"dbk-silu, h {hidden}, r {rank:,}, batches of {batch:,}, {precision}"
        found.append(_row(what, rate, f"{EPOCHS} epochs of {ROWS:,} rows", EPOCHS * ROWS))
    return found


def default_fits(device: str, quick: bool) -> list[timings.Row]:
    """Whole fits of the default, of made-up tiles in eight quarters."""
    found = []
    for n in (800,) if quick else (1_000_000,):
        seconds = sizes.fit(n, device)["seconds"]
        found.append(_row("fit of the default", n / seconds, f"{n:,} rows", n))
    return found


def _row(what: str, rate: float, of: str, number: int) -> timings.Row:
    """A line of the table: so many a second, and the seconds that the whole takes."""
    return {"what": what, "a second": rate, "of": of, "seconds": number / rate}


def main(argv: list[str] | None = None) -> int:
    """Run; 0 when all was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda, one of several as cuda:1, or cpu")
    parser.add_argument("--quick", action="store_true", help="smallest sizes: does it run?")
    parser.add_argument("--out", type=Path, default=None, help="also write the rows as JSON")
    options = parser.parse_args(argv)
    device = machine.device_asked(parser, options.device)
    cuda = device.startswith("cuda")
    what = torch.cuda.get_device_name(device) if cuda else machine.describe()["processor"]
    rows: list[timings.Row] = []
    for part in (training, deep_maps, default_map, default_fits):
        rows += part(device, options.quick)
        if options.out is not None:  # what is done by now is kept
            told = {"schema": 1, "machine": machine.describe(), "device": what, "rows": rows}
            machine.write_text(options.out, json.dumps(told))
    lines: list[Any] = [[r["what"], f"{r['a second']:,.0f}", r["of"], f"{r['seconds']:,.0f}"] for r in rows]
    print(f"{what}, torch {torch.__version__}\n")
    print("\n".join(markdown(HEADER, lines)))
    if cuda:
        print(f"\npeak of the device {torch.cuda.max_memory_allocated(device) / 2**30:.1f} GiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
