"""
Save a model, load it in another process
========================================

A saved model is arrays and JSON, no pickle: another program, another machine or another version of
Python reads it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from momentous.lowrank import MatrixCompletion, Ratings

ratings = Ratings.twin("ml-100k")
model = MatrixCompletion(rank=8, max_iterations=10).fit(ratings)
path = Path(tempfile.mkdtemp()) / "model.npz"
model.save(path)
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")

# %%
# A process that knows nothing but the file:

program = """
import sys
from momentous.lowrank import MatrixCompletion
model = MatrixCompletion.load(sys.argv[1])
for item, score in zip(*model.recommend(12, n=3)):
    print(item, f"{score:.6f}")
"""
answer = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
print(answer.stdout or answer.stderr)

# %%
# The same numbers as here.

for item, score in zip(*model.recommend(12, n=3), strict=True):
    print(item, f"{score:.6f}")

# %%
loaded = MatrixCompletion.load(path)
pairs = np.column_stack([ratings.rows, ratings.cols])[:2000]
plt.plot(model.predict(pairs), loaded.predict(pairs), ".", markersize=2)
plt.xlabel("predictions before")
plt.ylabel("predictions of the loaded model")
plt.show()
