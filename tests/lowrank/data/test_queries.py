"""SQL runs where it is asked for, over the tables that are named, and reads nothing else."""

from pathlib import Path

import pytest

from momentous.lowrank import Ratings, RatingsFileError, read_ratings
from momentous.lowrank.data import read_pairs
from momentous.lowrank.data.files.sources import find_sources

duckdb = pytest.importorskip("duckdb")

TEXT = "user,item,rating\nb,20,5\na,3,3.5\nb,3,1\nb,20,99\n"
BELOW_TEN = "SELECT * FROM r WHERE rating < 10"


def check(ratings):
    assert ratings.row_ids.tolist() == ["a", "b"]
    assert ratings.col_ids.tolist() == [3, 20]
    assert ratings.values.tolist() == [3.5, 1.0, 5.0]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(TEXT)
    return path


# --- a path is a path -----------------------------------------------------------------------------

NOT_PATHS = [
    "SELECT * FROM '{}'",
    "from '{}'",
    "COPY (SELECT 1) TO '{}'",
    "INSTALL httpfs; SELECT * FROM '{}'",
    "SELECT '" + "long" * 1000 + "' FROM '{}'",
    "https://example.org/{}",
    "s3://bucket/it's.parquet",
    "file://{}",
]


@pytest.mark.parametrize("text", NOT_PATHS)
@pytest.mark.parametrize("read", [read_ratings, Ratings.read, read_pairs, find_sources])
def test_no_text_runs_where_a_path_is_taken(path, monkeypatch, text, read):
    opened = []
    monkeypatch.setattr("momentous.lowrank.data.read.open_database", opened.append)
    before = path.read_bytes()
    with pytest.raises(FileNotFoundError) as told:
        read(text.format(path))
    assert not opened  # DuckDB has not been asked
    assert path.read_bytes() == before
    if not text.startswith(("COPY", "INSTALL")):
        way = "duckdb.sql" if "://" in text else "Ratings.query"
        assert way in str(told.value)


def test_a_file_may_be_called_like_a_query_or_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SELECT * FROM x", "FROM r.csv", "~x.csv", "~root", "file:r.csv"):
        Path(name).write_text("1,2,3\n")
        assert read_ratings(name, cache=False).nnz == 1
        assert read_ratings(Path(name), cache=False).nnz == 1
    for folder in ("https:/host", "file:/etc"):  # as Path writes an address
        Path(folder).mkdir(parents=True)
        Path(folder, "r.csv").write_text("1,2,3\n")
        assert read_ratings(f"{folder}/r.csv", cache=False).nnz == 1


def test_a_tilde_is_the_home_folder_and_no_part_of_a_name(tmp_path, monkeypatch):
    home, here = tmp_path / "home", tmp_path / "here"
    for folder in (home, here, here / "~"):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    (home / "x.csv").write_text("1,2,3\n")
    (here / "~" / "x.csv").write_text("1,2,4\n")
    # DuckDB itself takes all that begins with a tilde for a path below the home folder.
    for name in ("~x.csv", "~y.csv", "~y.parquet"):
        Path(f"{home}{name[1:]}").write_text("1,2,5\n")
        if name.endswith(".csv"):
            Path(name).write_text("x,2,6\nx,3,6\n")
    assert read_ratings("~/x.csv").values.tolist() == [3.0]
    assert (home / "x.csv.momentous.npz").exists()
    for source in ("~x.csv", Path("~x.csv"), ["~x.csv"], "~x*.csv", "*x.csv"):
        assert read_ratings(source, cache=False).values.tolist() == [6.0, 6.0]
    assert read_ratings("~y.csv").values.tolist() == [6.0, 6.0]
    assert Path("~y.csv.momentous.npz").exists()
    duckdb.sql("COPY (SELECT 1 AS user, 2 AS item, 7 AS rating) TO 'p' (FORMAT parquet)")
    Path("p").rename("~y.parquet")
    assert read_ratings("~y.parquet").values.tolist() == [7.0]
    with pytest.raises(FileNotFoundError, match=r"no file '~nobody\.csv'"):
        read_ratings("~nobody.csv")


# --- a query --------------------------------------------------------------------------------------


def test_a_query_reads_the_tables_that_it_is_given(path, tmp_path):
    for sql in (
        BELOW_TEN,
        BELOW_TEN + ";",
        "from r where rating < 10 -- these",
        f"{BELOW_TEN} /**/",
    ):
        check(Ratings.query(sql, {"r": path}))
    check(Ratings.query(f"SELECT * FROM '{path}' WHERE rating < 10", {"r": str(path)}))
    for name in ("other [1].csv", "~r.csv", "r.csv.gz"):
        other = tmp_path / name
        if name.endswith(".gz"):
            import gzip

            other.write_bytes(gzip.compress(TEXT.encode()))
        else:
            other.write_text(TEXT)
        check(Ratings.query(BELOW_TEN, {"r": other}))
    pandas = pytest.importorskip("pandas")
    good = pandas.DataFrame({"user": ["a", "b"]})
    sql = "SELECT r.* FROM r JOIN good USING (user) WHERE rating < 10"
    check(Ratings.query(sql, {"r": path, "good": good}))
    check(Ratings.query(sql.replace("r.*", "stars.*").replace("FROM r", "FROM stars"),
                        {"stars": [path], "good": good}, threads=1))  # fmt: skip
    named = Ratings.query("SELECT 1 AS x, 2 AS y, 3.5 AS z", columns=("x", "y", "z"))
    assert named.values.tolist() == [3.5]


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_query_reads_parquet_and_json(tmp_path, path, ending):
    other = tmp_path / f"other.{ending}"
    duckdb.sql(f"COPY (FROM '{path}') TO '{other}'")
    check(Ratings.query(BELOW_TEN, {"r": other}))


def test_a_relation_of_duckdb_is_a_table(tmp_path):
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute("CREATE TABLE sales AS SELECT 'u' || i AS user, i % 3 AS item, "
                           "i / 2 AS rating FROM range(10) t(i)")  # fmt: skip
        ratings = Ratings.read(connection.sql("SELECT * FROM sales WHERE item < 2"))
    assert (ratings.shape, ratings.nnz) == ((7, 2), 7)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM '{other}'",
        "SELECT * FROM read_csv('{other}')",
        "SELECT * FROM read_text('/etc/hostname'), r",
        "SELECT * FROM glob('{folder}/*'), r",
        "SELECT * FROM 'https://example.org/r.csv'",
        "SELECT * FROM 's3://bucket/r.parquet'",
        "SELECT * FROM sqlite_scan('{other}', 'r')",
        "WITH x AS (COPY (SELECT 1) TO '{path}' (USE_TMP_FILE false)) SELECT * FROM r",
        "WITH x AS (COPY (SELECT 1) TO '{other}') SELECT * FROM r",
        "WITH x AS (COPY (SELECT 1) TO '{folder}/new.csv') SELECT * FROM r",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{path}'' (USE_TMP_FILE false)')",
        "SELECT * FROM source",  # a variable of Python
        "COPY (SELECT 1) TO '{path}' (USE_TMP_FILE false)",
        "COPY (SELECT 1) TO '{path}' (USE_TMP_FILE false); SELECT * FROM r",
        "SET enable_external_access = true; SELECT * FROM r",
        "SET lock_configuration = false; SELECT * FROM r",
        "INSTALL httpfs; SELECT * FROM r",
        "LOAD httpfs",
        "ATTACH '{folder}/new.duckdb'; SELECT * FROM r",
        "PRAGMA version",
        "SELECT FROM WHERE",
        "",
        ";",
    ],
)
def test_a_query_can_do_nothing_but_read_its_tables(path, tmp_path, sql):
    other = tmp_path / "other.csv"
    other.write_text(TEXT)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    with pytest.raises(RatingsFileError, match="the query"):
        Ratings.query(sql.format(path=path, other=other, folder=tmp_path), {"r": path})
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_a_query_that_may_not_read_a_file_says_what_to_do(path):
    with pytest.raises(RatingsFileError, match=r"tables alone; name the file .*duckdb.sql"):
        Ratings.query(f"SELECT * FROM '{path}'")
    check(Ratings.read(duckdb.sql(f"SELECT * FROM '{path}' WHERE rating < 10")))
    check(Ratings.query("SELECT * FROM triples WHERE rating < 10", {"Triples": path}))
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere.csv"):
        Ratings.query("SELECT * FROM r", {"r": path.with_name("nowhere.csv")})
    with pytest.raises(RatingsFileError, match=r"query.*nowhere"):
        Ratings.query("SELECT * FROM nowhere")


# --- the names of folders -------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["rating=99", "user=7", "line=5", "c0=7/c1=8", "item=x"])
def test_the_name_of_a_folder_is_no_column(tmp_path, folder):
    place = tmp_path / folder
    place.mkdir(parents=True)
    rows = "SELECT * FROM (VALUES (1, 2, 3.0), (4, 5, 6.0)) t(user, item, rating)"
    duckdb.sql(f"COPY ({rows}) TO '{place}/r.parquet'")
    (place / "r.csv").write_text("1,2,3\n4,5,6\n")
    (place / "t.csv").write_text("u1,2,3\nu4,5,6\n")
    (place / "r.txt").write_text("2:\n1,3,d\n5:\n4,6,d\n")
    (place / "r.jsonl").write_text('{"user":1,"item":2,"rating":3}\n{"user":4,"item":5,"rating":6}')
    for name in ("r.parquet", "r.csv", "t.csv", "r.txt", "r.jsonl"):
        ratings = read_ratings(place / name, cache=False)
        assert ratings.values.tolist() == [3.0, 6.0]
        assert ratings.row_ids.tolist() == (["u1", "u4"] if name == "t.csv" else [1, 4])
        assert ratings.col_ids.tolist() == [2, 5]
    tables = {"r": place / "r.parquet"}
    assert Ratings.query("SELECT * FROM r", tables).values.tolist() == [3.0, 6.0]


def test_a_column_that_only_the_folder_has_is_missing(tmp_path):
    place = tmp_path / "user=7"
    place.mkdir()
    duckdb.sql(f"COPY (SELECT 1 AS item, 3.0 AS rating) TO '{place}/r.parquet'")
    with pytest.raises(RatingsFileError, match="does not say plainly which columns are user"):
        read_ratings(place / "r.parquet")


def test_a_query_reads_a_stream_once():
    arrow = pytest.importorskip("pyarrow")
    users = arrow.array([1, 2, 2**63 + 1], arrow.uint64())  # the last fits no column of numbers
    table = arrow.table({"user": users, "item": [1, 2, 3], "rating": [3.0, 4.0, 5.0]})
    stream = arrow.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))
    ratings = Ratings.query("FROM plays", {"plays": stream})
    assert ratings.row_ids.tolist() == ["1", "2", str(2**63 + 1)]
    assert ratings.values.tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("tables", [["a.csv"], "a.csv", {1: "a.csv"}])
def test_a_query_says_what_its_tables_must_be(tables):
    with pytest.raises(TypeError, match="must be a text and tables"):
        Ratings.query("FROM a", tables)
