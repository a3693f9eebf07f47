"""How a stored path kernel grows with the number of examples: time, peak memory and disk, with fitted exponents.

python benchmarks/kernel_growth.py                 # n = 1,000 to 16,000
python benchmarks/kernel_growth.py --sizes 500 1000 2000 --no-save
"""

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

import torch

import measure
from neuralpath import PathKernel, nets

SIZES = (1000, 2000, 4000, 8000, 16000)
WIDTH, DEPTH, D_IN = 256, 6, 784
MEMORY = 2**30

# In a process of its own for each size, so that a peak is that of this size alone. The set-up compiles and imports.
SETUP = f"""
import tempfile
from neuralpath import PathKernel
torch.set_num_threads({{threads}})
model = npath.nets.FC({D_IN}, {WIDTH}, {DEPTH}, generator=torch.Generator().manual_seed(0))
x = torch.randn({{n}}, {D_IN}, generator=torch.Generator().manual_seed(1))
with tempfile.TemporaryDirectory(dir={{folder!r}}) as folder:
    PathKernel(model).store(folder + "/K.zarr", x[:64], memory={MEMORY})
"""
CODE = f"""
with tempfile.TemporaryDirectory(dir={{folder!r}}) as folder:
    PathKernel(model).store(folder + "/K.zarr", x, memory={MEMORY})
"""


def measured(n: int, folder: Path) -> dict[str, float]:
    """Seconds, bytes of memory beyond the inputs, and bytes on the disk of one store."""
    model = nets.FC(D_IN, WIDTH, DEPTH, generator=torch.Generator().manual_seed(0))
    x = torch.randn(n, D_IN, generator=torch.Generator().manual_seed(1))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        PathKernel(model).store(f"{place}/warm.zarr", x[:64], memory=MEMORY)
        begun = time.perf_counter()
        kernel = PathKernel(model).store(f"{place}/K.zarr", x, memory=MEMORY)
        seconds = time.perf_counter() - begun
        on_disk = sum(path.stat().st_size for path in kernel.folder.rglob("*") if path.is_file())
    given = {"n": n, "folder": str(folder), "threads": torch.get_num_threads()}
    peak = measure.peak_memory(SETUP.format(**given), CODE.format(**given))
    return {"n": n, "seconds": seconds, "peak_bytes": peak, "disk_bytes": on_disk}


def fitted_exponent(sizes: list[float], values: list[float]) -> float:
    """The power p of a least-squares fit of ``values`` by a constant times ``sizes ** p``."""
    xs, ys = [math.log(size) for size in sizes], [math.log(max(value, 1e-9)) for value in values]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - mean_x) ** 2 for x in xs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the stores are written")
    parser.add_argument("--no-save", action="store_true", help="only print")
    given = parser.parse_args()
    if len(set(given.sizes)) < 2:
        parser.error("an exponent needs two sizes at least")
    rows = []
    for n in given.sizes:
        rows.append(measured(n, given.folder))
        row = rows[-1]
        print(
            f"n = {n:6,}: {row['seconds']:8.2f} s, {row['peak_bytes'] / 2**20:8.1f} MiB of memory, "
            f"{row['disk_bytes'] / 2**20:8.1f} MiB on the disk", flush=True,
        )  # fmt: skip
    sizes = [float(row["n"]) for row in rows]
    exponents = {
        key: round(fitted_exponent(sizes, [float(row[key]) for row in rows]), 3)
        for key in ("seconds", "peak_bytes", "disk_bytes")
    }
    print(f"fitted exponents: {exponents}")
    if not given.no_save:
        network = {"d_in": D_IN, "width": WIDTH, "depth": DEPTH, "dtype": "float32", "memory": MEMORY}
        measure.save("kernel_growth", {"network": network, "sizes": rows, "exponents": exponents})
    return 0


if __name__ == "__main__":
    sys.exit(main())
