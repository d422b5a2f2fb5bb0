"""iALS as published on the protocols of its paper: the NCF one, and users who are folded in.

Rendle, Krichene, Zhang and Koren, "Revisiting the performance of iALS on item recommendation
benchmarks" (RecSys 2022).  The defaults are their settings for MovieLens-1M on the NCF protocol:
dimension 192, lambda .007, a0 .3, nu 1, 12 plain sweeps; HR@10 of .73 and NDCG@10 of .453 are to be
reached by them.

    python benchmarks/published_ials.py ncf FOLDER [--rank 192]   # the authors' three files of NCF
    python benchmarks/published_ials.py users [FILE or TWIN] [--rank 64]
    python benchmarks/published_ials.py weights [FILE or TWIN] [--rank 32]    # the default ridge

The first takes ``ml-1m.train.rating``, ``ml-1m.test.rating`` and ``ml-1m.test.negative`` of He et
al., where the last rating of each user is ranked among 99 items without one.  The second holds out
a tenth of the users, fits to the others, folds the former in with 80 % of their entries, and ranks
the rest: recall at 20 and 50, NDCG at 100.  The third holds out a fifth of the entries: recall at
20 with the default ridge, with quarters to fourfolds of it, and with .003, for some weights a0.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from time import process_time

import numpy as np

from momentous.lowrank import ImplicitMF, Ratings


def published(given: argparse.Namespace) -> ImplicitMF:
    """The estimator with the settings of the paper."""
    return ImplicitMF(
        given.rank,
        ridge=given.ridge,
        weighting=given.exponent,
        unobserved_weight=given.unobserved_weight,
        solver="sweep",
        max_iterations=given.epochs,
        start_scale=0.1 / math.sqrt(given.rank),
        tol=0.0,
        half_sweeps="exact",
        random_state=given.seed,
    )


def leave_one_out(given: argparse.Namespace) -> None:
    folder = Path(given.data)
    train = np.loadtxt(folder / "ml-1m.train.rating", np.int64, usecols=(0, 1))
    wanted = np.loadtxt(folder / "ml-1m.test.rating", np.int64, usecols=(0, 1))
    lines = (folder / "ml-1m.test.negative").read_text().splitlines()
    others = np.array([line.split("\t")[1:] for line in lines], np.int64)
    fitted = published(given).fit(train)
    items = np.column_stack([wanted[:, 1], others])
    pairs = np.column_stack([np.repeat(wanted[:, 0], items.shape[1]), items.ravel()])
    scores = fitted.predict(pairs).reshape(items.shape)
    places = np.sum(scores[:, 1:] >= scores[:, :1], axis=1)  # from 0; an equal score is ahead
    hits = places < 10
    ndcg = np.mean(hits * math.log(2) / np.log(places + 2))
    print(f"HR@10 {np.mean(hits):.4f}, NDCG@10 {ndcg:.4f}")


def new_users(given: argparse.Namespace) -> None:
    file = Path(given.data)
    ratings = Ratings.read(file) if file.exists() else Ratings.twin(given.data)
    rng = np.random.default_rng(given.seed)
    new = (rng.random(ratings.shape[0]) < 0.1)[ratings.rows]
    held_out = new & (rng.random(ratings.nnz) < 0.2)
    pairs = np.column_stack([ratings.rows, ratings.cols])
    fitted = published(given).fit(pairs[~new])
    found = fitted.fold_in_metrics(pairs[held_out], given=(pairs[new & ~held_out], None))
    print(", ".join(f"{name} {value:.4f}" for name, value in found.items()))


def ridges(given: argparse.Namespace) -> None:
    file = Path(given.data)
    ratings = Ratings.read(file) if file.exists() else Ratings.twin(given.data)
    known, held_out = ratings.split(0.2)
    seen, wanted = (part.with_values(np.ones(part.nnz)) for part in (known, held_out))
    for weight in (0.01, 0.1, 1.0):

        def recall(ridge: float | None, weight: float = weight) -> tuple[float, float]:
            options = {"ridge": ridge, "unobserved_weight": weight, "max_iterations": 15}
            fitted = ImplicitMF(given.rank, **options).fit(seen)
            found = fitted.ranking_metrics(wanted, k=20).recall
            return found, fitted.model_.penalty.ridge * weight / (1.0 + weight)

        best, default = recall(None)
        others = [f"{recall(share * default)[0]:.4f}" for share in (0.25, 0.5, 2.0, 4.0)]
        print(
            f"a0 {weight:4}: default ridge {default:.4f} {best:.4f}; times 1/4, 1/2, 2, 4 "
            f"{', '.join(others)}; .003 {recall(0.003)[0]:.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol", choices=["ncf", "users", "weights"])
    parser.add_argument("data", nargs="?", default="ml-1m")
    parser.add_argument("--rank", type=int, default=192)
    parser.add_argument("--ridge", type=float, default=0.007)
    parser.add_argument("--exponent", type=float, default=1.0)
    parser.add_argument("--unobserved-weight", type=float, default=0.3)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = process_time()
    {"ncf": leave_one_out, "users": new_users, "weights": ridges}[given.protocol](given)
    print(f"{process_time() - began:.1f} CPU s, reading and compiling included")


if __name__ == "__main__":
    main()
