"""Finding the files of a task in a folder, and reading them into rows.

Known are the CS224N course files (tab-separated .csv), GLUE's .tsv files, MT-DNN's canonical .tsv
files, and plain .csv, .tsv, .jsonl and .parquet files. Notebook 00 shows them.
"""

import csv
import io
import json
import re
import warnings
from pathlib import Path

__all__ = ["canonical_columns", "find_files", "first_few", "name_classes", "read_rows"]

LARGEST_BYTES, LARGEST_ROWS = 2_000_000_000, 5_000_000  # of one file, which is held in memory
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
SPLIT_NAMES = {
    "train": ("train",),
    "dev": ("dev", "validation", "dev_matched", "validation_matched"),
    "test": ("test", "test_matched"),
    "dev_mismatched": ("dev_mismatched", "validation_mismatched"),
}


def find_files(folder, task):
    """Return the files of a task, from a folder or from its subfolder named after the task.

    The subfolder may also have the name of the task whose mini data it shares, such as stsb for
    stsb_star. A file name of the CS224N release has priority, then MT-DNN's (rte_train.tsv), then
    train, dev (or validation) and test with a known ending.

    Args:
        folder: the folder.
        task: a `Task`.

    Returns:
        A dict from the split to its path, or to the list of its paths where it comes in shards.

    Raises:
        FileNotFoundError: the folder, or the file of train or dev, is missing.
        ValueError: two files could be meant, or a shard is missing.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder. source is 'mini', 'hub', or a folder with the files of "
            f"task {task.name!r}."
        )
    inside = sorted(folder.iterdir())
    folders = [path for path in inside if path.is_dir()]
    names = filter(None, (task.name, task.mini))
    places = [folder, *(path for name in names for path in folders if _same(path.name, name))]
    found = {}
    for split, names in SPLIT_NAMES.items():
        known = [task.files[split]] if split in task.files else []
        # MT-DNN writes rte_dev.tsv, and mnli_matched_dev.tsv for GLUE's dev_matched.tsv.
        known += ["_".join([_prefix(task), *reversed(name.split("_"))]) + ".tsv" for name in names]
        plain = [name + ending for name in names for ending in ENDINGS]
        for place in places:
            files = [path for name in known + plain if (path := place / name).is_file()]
            shards = [shard for name in names for shard in place.glob(f"{name}-*-of-*.parquet")]
            if files and files[0].name in known:
                found[split] = files[0]
                break
            if len(files) + bool(shards) > 1:
                both = [path.name for path in [*files, *shards[:1]]]
                raise ValueError(
                    f"{place} has {' and '.join(both)}, expected one {split} file. Remove or "
                    "rename the others."
                )
            if files or shards:
                found[split] = files[0] if files else _all_shards(shards)
                break
        if split in ("train", "dev") and split not in found:
            raise FileNotFoundError(
                f"{folder} has no {split} file for task {task.name!r}. Expected one of "
                f"{known[:2] + plain[:4]} there or in a subfolder {task.name!r}; found "
                f"{[path.name + _kind(path) for path in inside[:12]]}."
            )
    return found


def _all_shards(shards):
    """Return the shards of a split in order; none may be missing or of another release."""
    numbers = [re.search(r"-(\d+)-of-(\d+)\.parquet$", path.name) for path in sorted(shards)]
    counts = sorted({int(found[2]) for found in numbers if found})
    present = [int(found[1]) for found in numbers if found]
    if not all(numbers) or len(counts) > 1 or present != list(range(counts[0])):
        raise ValueError(
            f"{shards[0].parent} has {first_few([path.name for path in sorted(shards)])}, expected "
            f"all {' or '.join(map(str, counts))} shards of one release. Download them again."
        )
    return sorted(shards)


def _kind(path):
    """Return "" for a file, and what else a folder's entry is."""
    return "" if path.is_file() else " (a folder)" if path.is_dir() else " (not a file)"


def _same(*names):
    """Return whether names are the same without case and hyphens, as SST-2 and sst2."""
    return len({name.lower().replace("-", "").replace("_", "") for name in names}) == 1


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


def read_rows(path, task=None, *, drop_ragged=False):
    """Read a file into rows.

    Args:
        path: a file, or the list of a split's shards.
        task: the `Task` of the file, which knows the columns of files without a header line.
        drop_ragged: whether to drop the lines of a csv or tsv file that have more or fewer columns
            than the header. A warning counts them.

    Returns:
        (path, rows), where rows is a list of (row number, dict of the columns). Text files count
        lines from 1, parquet files count rows from 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is too large, not UTF-8, not of the format of its ending, or has ragged
            lines.
    """
    if isinstance(path, list):
        rows = [row for shard in path for _, row in read_rows(shard, task)[1]]
        return path[0].with_name(path[0].name.split("-")[0]), list(enumerate(rows))
    path = Path(path).expanduser()
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"{path} {found}. Expected a file that ends in one of {list(ENDINGS)}; check the path."
        )
    if path.suffix not in ENDINGS:
        raise ValueError(
            f"{path} ends in {path.suffix!r}, expected one of {list(ENDINGS)}. Save it as .csv."
        )
    _check_size(path, "bytes", path.stat().st_size, LARGEST_BYTES)
    if path.suffix == ".parquet":
        return path, _read_parquet(path)
    content = path.read_bytes()
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: not UTF-8 (byte {content[error.start]:#04x}). "
            "Save the file as UTF-8."
        ) from error
    if path.suffix == ".jsonl":
        return path, _jsonl(path, text)
    return path, _csv(path, text, task, drop_ragged)


def _csv(path, text, task, drop_ragged):
    # The course's .csv files are tab-separated with csv quoting. A .tsv file has no quoting.
    tsv = path.suffix == ".tsv"
    tab = tsv or "\t" in text.split("\n", 1)[0]
    quoting = csv.QUOTE_NONE if tsv else csv.QUOTE_MINIMAL
    lines, rows, first = io.StringIO(text, newline=""), [], 1
    # strict: a quotation mark too many would join the rows up to the next mark
    reader = csv.reader(lines, delimiter="\t" if tab else ",", quoting=quoting, strict=True)
    before = csv.field_size_limit(2**31 - 1)  # by default, a text has at most 131,072 characters
    try:
        for row in reader:
            first = reader.line_num + 1
            if row:
                rows.append((reader.line_num, row))
    except csv.Error as error:
        fault = _csv_fault(error, first, reader.line_num, "tab" if tab else "comma")
        raise ValueError(f"{path}, {fault}") from error
    finally:
        csv.field_size_limit(before)
    if not rows:
        return []
    header = _columns_without_header(path, task, rows[0][1]) or rows.pop(0)[1]
    if not rows:
        raise ValueError(
            f"{path} has one line only, which was read as the header: {header[:8]}. Expected the "
            "names of the columns, and at least one row below."
        )
    _check_columns(path, header)
    ragged = [number for number, row in rows if len(row) != len(header)]
    if ragged and not drop_ragged:
        found = len(dict(rows)[ragged[0]])
        raise ValueError(
            f"{path}, line {ragged[0]}: {found} columns, expected {len(header)}: {header[:8]}. "
            f"Look for a missing or extra {'tab' if tab else 'comma or quote'}, or pass "
            "on_bad_row='drop' to load_task to drop such lines."
        )
    if ragged:
        warnings.warn(
            f"{path}: {len(ragged)} of {len(rows)} lines without {len(header)} columns were "
            f"dropped (line {first_few(ragged)}).",
            stacklevel=4,
        )
    return [(number, dict(zip(header, row))) for number, row in rows if len(row) == len(header)]


def _csv_fault(error, first, last, mark):
    """Return where and what is wrong in the row from line `first` to `last`, and what to do."""
    if "unexpected end" in str(error):
        return (
            f"line {first}: a quotation mark is opened and never closed, so that all lines below "
            "belong to one text. Close it, or write it twice where it belongs to the text."
        )
    if "expected after" in str(error):
        return (
            f"line {first}: a text that begins with a quotation mark ends in line {last}, but no "
            f"{mark} follows. Write every mark that belongs to a text twice, and put the text "
            f"between two marks, without a space between the last one and the {mark}."
        )
    return f"line {last}: {error}. Expected columns separated by a {mark}."


def _check_columns(path, header):
    if repeated := [name for name in dict.fromkeys(header) if header.count(name) > 1]:
        raise ValueError(
            f"{path} has the column {repeated[0]!r} {header.count(repeated[0])} times, expected "
            "once. Rename or remove the others."
        )


def first_few(numbers):
    """Write the first five of some numbers.

    Args:
        numbers: a list.

    Returns:
        A text such as "3, 5" or "1, 2, 3, 4, 5, ...".
    """
    return ", ".join(map(str, numbers[:5])) + ", ..." * (len(numbers) > 5)


def _columns_without_header(path, task, first):
    """Return the columns of a .tsv file whose first line is a row; () where it is the header."""
    if task is None or path.suffix != ".tsv" or "label" in first:
        return ()
    return canonical_columns(path, task) or task.headerless * (len(first) == len(task.headerless))


def _jsonl(path, text):
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line, object_pairs_hook=_unique)
            except RecursionError as error:
                raise ValueError(
                    f"{path}, line {number}: nested too deeply. Expected texts and a label; "
                    "remove the line."
                ) from error
            except ValueError as error:  # also for a key that is there twice, or 5,000 digits
                raise ValueError(
                    f"{path}, line {number}: not valid JSON ({error}). Expected one object "
                    "{...} per line; correct or remove the line."
                ) from error
            if not isinstance(row, dict):
                kind = type(row).__name__
                raise ValueError(
                    f"{path}, line {number}: found a {kind}, expected an object {{...}} with the "
                    "columns as keys. Correct or remove the line."
                )
            rows.append((number, row))
    return rows


def _unique(pairs):
    """Return a JSON object, in which no key occurs twice."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"a key occurs twice in {[key for key, _ in pairs][:8]}")
    return dict(pairs)


def _read_parquet(path):
    import pyarrow
    import pyarrow.parquet

    rows, size = [], 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow.names)
            _check_size(path, "rows", file.metadata.num_rows, LARGEST_ROWS)
            for batch in file.iter_batches(batch_size=1000):  # a small file may hold very much
                size += batch.nbytes
                _check_size(path, "bytes of uncompressed data", size, LARGEST_BYTES)
                rows += batch.to_pylist()
            metadata = file.schema_arrow.metadata or {}
    except (pyarrow.ArrowException, OSError) as error:  # the second: a damaged page
        raise ValueError(
            f"{path} cannot be read as parquet ({error}). It is truncated or of another format: "
            "download or write it again."
        ) from error
    return list(enumerate(name_classes(rows, _class_names(path, metadata))))


def _class_names(path, metadata):
    """Return {column: names of its classes}, as the hub's files have them."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {})["features"]
        return {key: list(one["names"]) for key, one in features.items() if "names" in one}
    except KeyError:
        return {}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path}: its names of classes cannot be read ({error}). Download or write it again."
        ) from error


def _check_size(path, what, found, largest):
    if found > largest:
        raise ValueError(
            f"{path} has {found:,} {what}, expected at most {largest:,}. Take a part of it, or "
            "split it into several tasks."
        )


def name_classes(rows, names):
    """Replace the integers of ClassLabel columns by the names of their classes, in place.

    Args:
        rows: a list of dicts.
        names: from a column to the names of its classes, in order.

    Returns:
        The same rows. -1, the hub's mark of an unknown label, becomes None. An integer without a
        name stays.
    """
    for column, classes in names.items():
        known = {-1: None, **dict(enumerate(classes))}
        for row in rows:
            row[column] = known.get(row[column], row[column])
    return rows
