"""Which files, and which pieces of them, a rank reads."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

from momentous.lowrank.ranks import pieces


def test_lines_of_json_are_read_by_one_rank_and_other_files_by_all(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "LEAST", 1)
    entries = [(k % 7, k % 5, 1 + k % 3) for k in range(300)]
    table, lines = tmp_path / "a.csv", tmp_path / "b.jsonl"
    table.write_text("user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in entries))
    text = '{{"user": {}, "item": {}, "rating": {}}}\n'
    lines.write_text("".join(text.format(*entry) for entry in entries))
    whole, cut = [], []
    for rank in range(8):
        ranks = SimpleNamespace(rank=rank, size=8, sum=lambda number: number)
        for one in pieces.own_sources([table, lines], ranks, {}):
            (cut if isinstance(one, pieces.Lines) else whole).append(one)
    assert [one.path for one in whole] == [lines]
    assert len(cut) > 1
    header = cut[0].header
    assert (cut[0].begin, cut[-1].end) == (header, table.stat().st_size)
    assert all(one.end == other.begin for one, other in pairwise(cut))
