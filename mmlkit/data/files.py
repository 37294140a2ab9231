"""Finds a task's files in a folder and reads them into rows, whatever release they come from.

Known: the CS224N course files (tab-separated .csv), GLUE's .tsv, and plain .csv, .tsv, .jsonl or .parquet.
"""

import csv
import io
import json
import warnings
from pathlib import Path

__all__ = ["find_files", "read_rows"]

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "validation", "dev_matched", "validation_matched"), "test": ("test", "test_matched"),
               "dev_mismatched": ("dev_mismatched", "validation_mismatched")}


def find_files(folder, task):
    """{split: path} of a task's files in `folder`, or in its subfolder named after the task; a split in shards is a list of paths.

    A CS224N name wins, then train/dev/test (or the hub's validation) with a known ending.
    Raises FileNotFoundError when the folder, train or dev is missing.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder. source is 'mini', 'hub', or a folder with the files of task {task.name!r}.")
    places = [folder] + [path for path in sorted(folder.iterdir()) if path.is_dir() and _same(path.name, task.name)]
    found = {}
    for split, names in SPLIT_NAMES.items():
        wanted = [task.files[split]] if split in task.files else []
        wanted += [name + ending for name in names for ending in ENDINGS]
        for place in places:
            path = next((place / name for name in wanted if (place / name).is_file()), None)
            shards = [] if path else [p for name in names for p in sorted(place.glob(f"{name}-[0-9]*-of-[0-9]*.parquet"))]
            if path or shards:
                found[split] = path or shards
                break
    for split in ("train", "dev"):
        if split not in found:
            known = [task.files[split]] if split in task.files else []
            raise FileNotFoundError(f"{folder} has no {split} file for task {task.name!r}. Expected one of "
                                    f"{known + [split + ending for ending in ENDINGS]} there or in a subfolder "
                                    f"{task.name!r}; found {sorted(p.name for p in folder.iterdir())[:12]}.")
    return found


def read_rows(path, headerless=(), *, drop_ragged=False):
    """(path, [(row number, dict of its columns), ...]). Text files count lines from 1, parquet rows from 0.

    path: a file, or the list of a split's shards. headerless: the column names of a .tsv release without a header line.
    drop_ragged: leave out the lines of a text file that have more or fewer columns than the header, with a warning that counts them.
    Raises FileNotFoundError, or ValueError for a file that is not UTF-8, not its format, or has lines of uneven width.
    """
    if isinstance(path, list):
        rows = [row for shard in path for _, row in read_rows(shard)[1]]
        return path[0].with_name(path[0].name.split("-")[0]), list(enumerate(rows))
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist.")
    readers = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise ValueError(f"{path} ends in {path.suffix!r}, expected one of {list(readers)}.")
    try:
        return path, readers[path.suffix](path, headerless, drop_ragged)
    except UnicodeDecodeError as error:
        line = path.read_bytes()[:error.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 (byte {error.object[error.start]:#04x}). "
                         "Save the file as UTF-8.") from error


def _read_csv(path, headerless, drop_ragged):
    text = path.read_bytes().decode("utf-8").removeprefix("\ufeff")       # whole, so that a fault has its place in the file
    first = text.split("\n", 1)[0]
    # The course's .csv files are tab-separated, with csv quoting; GLUE's .tsv files have no quoting at all.
    delimiter = "\t" if path.suffix == ".tsv" or "\t" in first else ","
    quoting = csv.QUOTE_NONE if path.suffix == ".tsv" else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}. Expected {delimiter!r}-separated text.") from error
    if not rows:
        return []
    header = rows[0][1]
    bare = bool(headerless) and path.suffix == ".tsv" and len(header) == len(headerless) and "label" not in header
    header, body = (list(headerless), rows) if bare else (header, rows[1:])
    if not body:
        raise ValueError(f"{path} has one line only, and it was read as the header: {header[:8]}. Expected the names of the columns in the "
                         "first line, and at least one row below it.")
    ragged = [(number, row) for number, row in body if len(row) != len(header)]
    if ragged and not drop_ragged:
        number, row = ragged[0]
        raise ValueError(f"{path}, line {number}: {len(row)} columns, expected the header's {len(header)}. "
                         f"Look for a missing or extra {'tab' if delimiter == chr(9) else 'comma or quote'}, or pass "
                         "on_bad_row='drop' to load_task to leave such lines out.")
    if ragged:
        warnings.warn(f"{path}: lines with another number of columns than the header's {len(header)} were dropped: {len(ragged)} of "
                      f"{len(body)} (line {', '.join(str(number) for number, _ in ragged[:5])}{', ...' if len(ragged) > 5 else ''}).", stacklevel=4)
    return [(number, dict(zip(header, row))) for number, row in body if len(row) == len(header)]


def _read_jsonl(path, _headerless, _drop_ragged):
    rows = []
    for number, line in enumerate(path.read_bytes().decode("utf-8").removeprefix("\ufeff").split("\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not valid JSON ({error}).") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: found a {type(row).__name__}, expected an object {{...}} per line.")
            rows.append((number, row))
    return rows


def _read_parquet(path, _headerless, _drop_ragged):
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} cannot be read as parquet ({error}). It is truncated or of another format.") from error
    rows = table.to_pylist()
    for column, names in _class_labels(table.schema.metadata or {}).items():
        for row in rows:
            if row.get(column) is not None and row[column] < len(names):       # others are told where labels are read
                row[column] = names[row[column]] if row[column] >= 0 else None
    return list(enumerate(rows))


def _class_labels(metadata):
    """{column: the names its integers stand for}, as the hub's parquet files say it in their schema."""
    features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    return {column: feature["names"] for column, feature in features.items() if isinstance(feature, dict) and "names" in feature}


def _same(a, b):
    return a.lower().replace("-", "").replace("_", "") == b.lower().replace("-", "").replace("_", "")
