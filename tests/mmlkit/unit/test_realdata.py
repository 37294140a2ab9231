"""Row counts of the real data in the folder MMLKIT_REALDATA, compared with its README."""

import os
import re
import warnings
from pathlib import Path

import pyarrow.parquet
import pytest

from mmlkit.data.loading import load_task
from mmlkit.data.tasks import get_task

FOLDER = os.environ.get("MMLKIT_REALDATA")
pytestmark = pytest.mark.skipif(
    not FOLDER, reason="MMLKIT_REALDATA is not set: the real data is not part of the repository"
)
# Rows per label of train and dev, from the README; for a regression the number of rows.
COUNTS = {
    "rte": ((1007, 985), (146, 131)),
    "mrpc": ((967, 1967), (129, 279)),
    "cola": ((2528, 6023), (322, 721)),
    "stsb": ((5749,), (1500,)),
    "sst2": ((17638, 22362), (428, 444)),
    "qnli": ((2158, 2211), (544, 550)),
    "qqp": ((11781, 7016), (2968, 1731)),
    "mnli": ((2774, 2501, 2576), (705, 622, 637)),
    "snli": ((3368, 3219, 3237), (3329, 3235, 3278)),
    "scitail": ((842, 1284), (657, 647)),
}
COURSE = {"sst": (8544, 1101, 2210), "cfimdb": (1707, 245, 488), "sts": (6040, 863, 1725)}


def rows_per_label(split):
    return (
        tuple(int((split.labels == i).sum()) for i in range(split.task.num_labels))
        if split.task.labels
        else (len(split),)
    )


def test_every_folder_has_a_count():
    assert sorted(path.name for path in Path(FOLDER).iterdir() if path.is_dir()) == sorted(
        [*COUNTS, "cs224n"]
    )


@pytest.mark.parametrize("name", COUNTS)
def test_rows_and_labels(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = load_task(name, FOLDER, labels=get_task(name).labels or None)
    assert (rows_per_label(data.train), rows_per_label(data.dev)) == COUNTS[name]
    readme = (Path(FOLDER) / "README.md").read_text(encoding="utf-8")
    line = re.search(rf"^\| `{name}` \| train ([\d,]+) · dev ([\d,]+)", readme, re.MULTILINE)
    assert (len(data.train), len(data.dev)) == tuple(
        int(count.replace(",", "")) for count in line.groups()
    )


def test_mnli_mismatched():
    assert rows_per_label(
        load_task("mnli", FOLDER, labels=get_task("mnli").labels).more["dev_mismatched"]
    ) == (346, 319, 335)


def test_stsb_star():
    """The expected counts come directly from the parquet files, without the library."""
    data = load_task("stsb_star", Path(FOLDER) / "stsb")
    for name, split in (("train", data.train), ("dev", data.dev)):
        scores = pyarrow.parquet.read_table(Path(FOLDER) / "stsb" / f"{name}.parquet")[
            "label"
        ].to_numpy()
        assert rows_per_label(split) == ((scores <= 2).sum(), (scores >= 4).sum())


@pytest.mark.parametrize("name", COURSE)
def test_course_files(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = load_task(name, Path(FOLDER) / "cs224n")
    assert tuple(len(split) for split in (data.train, data.dev, data.test)) == COURSE[name]
    assert data.test.labels is None


def test_course_quora_has_two_rows_without_a_label_in_each_file():
    with pytest.warns(UserWarning, match="rows without a label: 2 of") as told:
        data = load_task("quora", Path(FOLDER) / "cs224n")
    assert (len(told), len(data.train), len(data.dev)) == (2, 14139 - 2, 20214 - 2)
