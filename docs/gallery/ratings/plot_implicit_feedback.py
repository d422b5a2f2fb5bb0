"""
Clicks and plays: implicit feedback
===================================

People play what they like, and what they did not play says little.  `momentous.lowrank.ImplicitMF`
counts what was not seen as a weak "no", and a play as a "yes" with a confidence that grows with the
number of plays.
"""

import matplotlib.pyplot as plt
import numpy as np

from momentous.lowrank import ImplicitMF, Ratings

# %%
# Plays of 400 people with four tastes; each taste has its own part of the 200 songs.

rng = np.random.default_rng(0)
users, songs, tastes = 400, 200, 4
taste_of_user, taste_of_song = rng.integers(tastes, size=users), rng.integers(tastes, size=songs)
wanted = np.where(taste_of_user[:, None] == taste_of_song, 0.8, 0.05)
plays = rng.poisson(wanted)
rows, cols = np.nonzero(plays)
counted = Ratings(rows, cols, plays[rows, cols].astype(float), (users, songs))

# %%
# What is held out is recommended if the model has understood the tastes.  NDCG is 1 if the held-out
# songs come first.

known, held_out = counted.split(0.2)
model = ImplicitMF(rank=tastes, alpha=10.0).fit(known)
found = model.ranking_metrics(held_out, k=10)
print(f"NDCG {found.ndcg:.3f}, recall {found.recall:.3f}, AUC {found.auc:.3f}")

# %%
# The recommended songs are those of a person's taste.

recommended = model.recommend_all(range(users), n=10)
hits = [np.mean(taste_of_song[r.items] == taste_of_user[u]) for u, r in enumerate(recommended)]
plt.hist(hits, bins=np.linspace(-0.05, 1.05, 12), edgecolor="white")
plt.axvline(1 / tastes, color="0.5", linestyle="--", label="by chance")
plt.xlabel("share of the ten recommended songs that are of the person's taste")
plt.ylabel("people")
plt.legend()
plt.show()
