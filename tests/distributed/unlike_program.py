"""Two ranks that do not compute alike: what each of them finds goes to RANK.json in a folder."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

RANK = int(os.environ["RANK"])
KERNELS = (  # of BLAS, and without what NumPy calls its wide vectors
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX2 AVX512F"},
)
os.environ |= KERNELS[RANK]
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402

from momentous import L1, certify, minimize  # noqa: E402
from momentous.distributed import find  # noqa: E402

TOLERANCE = 1e-9
COLUMNS = 80


class Disturbed:
    """L1, whose prox is another one on rank 1 from some call on."""

    def __init__(self, disturb, call=1):
        self.term, self.disturb, self.left = L1(0.01), disturb, call
        self.value = self.term.value

    def prox(self, x, step):
        self.left -= 1
        made = self.term.prox(x, step)
        return self.disturb(made) if RANK == 1 and self.left <= 0 else made


def main(folder: Path) -> None:
    ranks = find()
    random = np.random.default_rng(0)
    A = random.standard_normal((200, COLUMNS)) * np.logspace(0, -2, COLUMNS)
    b = 3 * random.standard_normal(200)
    mine = ranks.share(200)

    def whole(x, A=A, b=b):
        r = A @ x - b
        return float(np.log1p(r * r / 2).sum()), A.T @ (r / (1 + r * r / 2))

    def fun(x):
        return whole(x, A[mine], b[mine])

    def attempt(work, *given, **options):
        """How a call on both ranks ends."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                found = work(fun, *given, jac=True, ranks="data", **options)
            except Exception as error:
                return {"end": type(error).__name__, "message": str(error)}
        if work is certify:
            return {"end": found.verdict.name}
        apart = found.x - L1(0.01).prox(found.x - whole(found.x)[1], 1.0)
        return {
            "end": found.status.name, "nit": found.nit, "x": found.x.tobytes().hex(),
            "residual": float(np.linalg.norm(apart)),
            "warnings": [str(each.message) for each in seen],
        }  # fmt: skip

    start = np.zeros(COLUMNS)
    run = {"tol": TOLERANCE, "max_iterations": 3000}
    terms = {
        "kernels": L1(0.01),
        "last digits": Disturbed(lambda x: np.nextafter(x, np.where(x == 0.0, x, np.inf))),
        "not a number": Disturbed(lambda x: x * np.nan, 30),
        "elsewhere": Disturbed(lambda x: x + 1e-3, 30),
    }
    found = {name: attempt(minimize, start, penalty=term, **run) for name, term in terms.items()}
    x = np.full(COLUMNS, 0.1)
    for name, moved, eps, products in (
        ("certify", 0.0, 1e3, None), ("certify by Lanczos", 1e-15, 1e3, 60),
        ("certify x", 1e-3, 1e3, None), ("certify eps", 0.0, 1e3 * (1 + RANK), None),
    ):  # fmt: skip
        found[name] = attempt(certify, x + moved * RANK, eps=eps, max_products=products)
    (folder / f"{RANK}.json").write_text(json.dumps(found))
    ranks.all_reduce(np.ones(1))


if __name__ == "__main__":
    with find().announced():
        main(Path(sys.argv[1]))
