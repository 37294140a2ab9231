"""Finding the files of a task in a folder, and reading them into tables.

Known are the CS224N course files (tab-separated .csv), GLUE's .tsv files, MT-DNN's canonical .tsv
files, and plain .csv, .tsv, .jsonl and .parquet files. Notebook 00 shows them.
"""

import csv
import io
import json
import re
from pathlib import Path

from mmlkit.data.tasks import label_key

__all__ = ["as_frame", "canonical_columns", "find_files", "read_rows"]

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
OTHER_SEPARATOR = "Or look for another separator than that of the file's ending."
SPLIT_NAMES = {
    "train": ("train",),
    "dev": ("dev", "validation", "dev_matched", "validation_matched"),
    "test": ("test", "test_matched"),
    "dev_mismatched": ("dev_mismatched", "validation_mismatched"),
}


def find_files(folder, task):
    """Return the files of a task, from a folder or from its subfolder named after the task.

    The folder "mini" stands for the mini data.

    The subfolder may also have the name of the task whose mini data it shares, such as stsb for
    stsb_star. A file name of the CS224N release has priority, then MT-DNN's (rte_train.tsv), then
    train, dev (or validation) and test with a known ending.

    Args:
        folder: the folder, or "mini".
        task: a `Task`.

    Returns:
        A dict from the split to its path, or to the list of its paths where it comes in shards.

    Raises:
        FileNotFoundError: the folder, or the file of train or dev, is missing.
        ValueError: two files could be meant, or a shard is missing.
    """
    folder = _mini_folder(task) if folder == "mini" else Path(folder).expanduser()
    inside = sorted(folder.iterdir())
    names = [_plain(name) for name in (task.name, task.mini) if name]
    places = [folder, *(path for name in names for path in inside if _plain(path.name) == name)]
    found = {}
    for split in SPLIT_NAMES:
        files = next(filter(None, (_files(place, task, split) for place in places)), None)
        if files:
            found[split] = files if len(files) > 1 else files[0]
        elif split in ("train", "dev"):
            raise FileNotFoundError(
                f"{folder} has no {split} file for task {task.name!r}: expected {split} with one "
                f"of {list(ENDINGS)}, or a name of the CS224N or MT-DNN release (whose sst is "
                f"'sst2'), there or in {task.name}/; found {[path.name for path in inside[:12]]}."
            )
    return found


def _mini_folder(task):
    """Return the mini data of a task: inside an installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parents[1]
    places = (here / "mini", here.parent / "data" / "mini")
    return next(place for place in places if place.is_dir()) / (task.mini or task.name)


def _plain(name):
    """Return a name without case and hyphens, so that SST-2 is sst2."""
    return name.lower().replace("-", "").replace("_", "")


def _files(place, task, split):
    """Return the files of a split in one folder: none, one, or all shards."""
    names = SPLIT_NAMES[split]
    # MT-DNN writes rte_dev.tsv, and mnli_matched_dev.tsv for GLUE's dev_matched.tsv.
    stems = ["_".join([_prefix(task), *reversed(name.split("_"))]) for name in names]
    for name in filter(None, (task.files.get(split), *(f"{stem}.tsv" for stem in stems))):
        if (place / name).is_file():
            return [place / name]
    plain = [place / f"{name}{ending}" for name in names for ending in ENDINGS]
    files = [path for path in plain if path.is_file()]
    shards = sorted(path for name in names for path in place.glob(f"{name}-*-of-*.parquet"))
    incomplete = any(int(path.stem[-5:]) != len(shards) for path in shards)
    if len(files) + bool(shards) > 1 or incomplete:
        raise ValueError(
            f"{place} has {[path.name for path in (*files, *shards)][:8]}, expected one {split} "
            "file, or all its shards of one release. Remove or rename the others."
        )
    return files or shards


def _prefix(task):
    return task.canonical or task.name


def canonical_columns(path, task):
    """Return the columns of a file in the format that MT-DNN's preprocessing writes.

    Such a .tsv file has no header line. Its name is that of the task and the split: rte_dev.tsv.

    Args:
        path: a path, or any other description of where rows come from.
        task: a `Task`.

    Returns:
        ("id", "label", first text, perhaps second text), or () where the name is another one.
    """
    name = Path(str(path)).name
    fits = name.startswith(f"{_prefix(task)}_") and name.endswith(".tsv")
    return ("id", "label", *task.text_columns) if fits else ()


def read_rows(path, task=None):
    """Read a file into a table.

    Args:
        path: a file, or the list of a split's shards.
        task: the `Task` of the file, which knows the columns of files without a header line.

    Returns:
        A pandas DataFrame. Its index has the line numbers of a text file, counted from 1, or the
        row numbers of a parquet file, counted from 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8, not of the format of its ending, or has a line with more
            or fewer columns than the header.
    """
    import pandas as pd

    if isinstance(path, list):
        return pd.concat([read_rows(shard) for shard in path], ignore_index=True)
    path = Path(path).expanduser()
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path} ends in {path.suffix!r}, expected one of {list(ENDINGS)}.")
    try:
        if path.suffix == ".parquet":
            return _read_parquet(path)
        return _read_jsonl(path) if path.suffix == ".jsonl" else _read_csv(path, task)
    except ValueError as error:  # also of wrong UTF-8 and of pyarrow
        way_on = ""
        if isinstance(error, UnicodeError):
            before = path.read_bytes().decode(errors="replace").partition("\ufffd")[0]
            way_on = f" (line {before.count(chr(10)) + 1}). Save it as UTF-8."
        raise ValueError(f"{path} cannot be read: {error}{way_on}") from error


def _read_csv(path, task):
    """Read a .csv file, which has quoting and may have tabs, or a .tsv file, which may have it."""
    import pandas as pd

    with path.open(encoding="utf-8-sig", newline="") as file:
        tab = path.suffix == ".tsv" or "\t" in file.readline()
        file.seek(0)
        plain = path.suffix == ".tsv" and not _is_quoted(file.read())
        file.seek(0)
        quoting = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
        # strict: a quotation mark too many would join the rows up to the next mark
        reader = csv.reader(file, delimiter="\t" if tab else ",", quoting=quoting, strict=True)
        rows = []
        try:
            for row in reader:
                if row:
                    rows.append((reader.line_num, row))
        except csv.Error as error:
            first = rows[-1][0] + 1 if rows else 1
            raise ValueError(
                f"lines {first} to {reader.line_num}: {error}. A text with quotation marks stands "
                f"between two marks, and each mark in it is written twice. {OTHER_SEPARATOR}"
            ) from error
    if not rows:
        raise ValueError("the file is empty.")
    header = _columns_without_header(path, task, rows[0][1]) or rows.pop(0)[1]
    for number, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"line {number} has {len(row)} columns, expected {len(header)}: {header[:8]}. "
                f"Look for a missing or extra {'tab' if tab else 'comma or quotation mark'}. "
                f"{OTHER_SEPARATOR}"
            )
    numbers, cells = zip(*rows) if rows else ((), ())
    return pd.DataFrame(list(cells), list(numbers), header, dtype=object)


def _is_quoted(text):
    """Return whether csv wrote a .tsv file, as pandas does. In GLUE's, marks are plain text."""
    if '"' not in text:
        return False
    if all(re.fullmatch('".*"', name) for name in text.splitlines()[0].split("\t")):
        return True  # QUOTE_NONNUMERIC, or R
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), "excel-tab", strict=True))
    except csv.Error:
        return False
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        again = io.StringIO()
        csv.writer(again, "excel-tab", quoting=quoting, lineterminator="\n").writerows(rows)
        if _lines(again.getvalue()) == _lines(text):
            return True
    return False


def _lines(text):
    return text.replace("\r\n", "\n").strip("\n").split("\n")


def _columns_without_header(path, task, first):
    """Return the columns of a .tsv file whose first line is a row; () where it is the header."""
    if task is None or path.suffix != ".tsv" or "label" in first:
        return ()
    columns, release = canonical_columns(path, task), task.headerless
    more = len(first) - len(release)  # SciTail's dgem format has a column more
    if release and more >= 0 and len(first) != len(columns):
        label = label_key(first[release.index("label")])
        if label in {"0", "1", *map(label_key, (*task.labels, *task.label_aliases))}:
            return (*release, *[""] * more)
    return columns


def _read_jsonl(path):
    import pandas as pd

    rows = {}
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            try:
                if line.strip():
                    rows[number] = json.loads(line)
                    if not isinstance(rows[number], dict):
                        raise ValueError(f"a {type(rows[number]).__name__}")
                    # Half of a UTF-16 pair ("\\ud800") is valid JSON, but no text.
                    json.dumps(rows[number], ensure_ascii=False).encode()
            except ValueError as error:
                raise ValueError(
                    f"line {number} is no JSON object: {error}. Write each row as an object in a "
                    "line of its own."
                ) from error
    return pd.DataFrame(list(rows.values()), list(rows), dtype=object)


def _read_parquet(path):
    from pyarrow import parquet

    table = parquet.read_table(path)
    metadata = json.loads((table.schema.metadata or {}).get(b"huggingface", "{}"))
    features = metadata.get("info", {}).get("features", {})
    names = {key: one["names"] for key, one in features.items() if "names" in one}
    return _name_classes(table.to_pandas(ignore_metadata=True), names)


def as_frame(rows):
    """Return a table in memory as a pandas DataFrame.

    Args:
        rows: a DataFrame, a datasets.Dataset, a list of dicts, or a dict of lists.

    Returns:
        A DataFrame. The integers of a ClassLabel are replaced by the names of its classes.
    """
    import pandas as pd

    if hasattr(rows, "features"):
        features = rows.features.items()
        names = {column: one.names for column, one in features if hasattr(one, "names")}
        rows = _name_classes(rows.to_pandas(), names)
    return pd.DataFrame(rows, dtype=object)


def _name_classes(frame, names):
    """Name the integers of ClassLabel columns; -1, the hub's mark for unknown, has no name."""
    for column, classes in names.items():
        known = dict(enumerate(classes))
        frame[column] = frame[column].astype(object).map(lambda i, known=known: known.get(i, i))
    return frame
