"""Every table of the five documents as data, and what its numbers should have been.

`tables/published.csv` has one row per printed number. Some numbers follow from others, and have the
recomputed number beside them: the improvements of MML's Tables 2 to 5, averages, GLUE scores,
overall scores, counts of examples. `tables/*.md` are the tables as printed; the script
`tests/helpers/derive_published.py` computes the csv file from them. Notebook 06 teaches with them.

    mml_v2   Maximal multiverse learning, EACL 2021       mt_dnn   Multi-task deep neural networks,
    mml_v1   its first arXiv version                               first arXiv version
    cs224n   Multitask BERT with PALs, a course report    mt_bert  slides that reproduce it
"""

from pathlib import Path

__all__ = ["cross_dataset", "misprints", "tables"]

_METHODS = {
    "BERT": "bert",
    "MML": "mml",
    "MV-1024": "mv-m",
    "MV-5": "mv-5",
    "BERT-D": "bert-drop",
    "BERT-Drop": "bert-drop",
    "BERT-Ensemble": "bert-ensemble",
}
_SETS = {name: name.lower() for name in ("RTE", "MNLI", "QNLI", "SNLI", "QQP", "MRPC")}
_SETS["STS-B*"] = "stsb_star"


def tables(source=None):
    """Return the printed numbers as a long DataFrame, one per row, in the order of the documents.

    MML truncates its improvements after the second decimal: a printed 0.35 agrees with 0.3582.

    Args:
        source: "mml_v2", "mml_v1", "mt_dnn", "mt_bert" or "cs224n"; None for all five.

    Returns:
        The columns source, table, row, column, split, metric (strings; split is "" where there is
        none), printed, recomputed (floats, not rounded) and note (a string, mostly ""). Recomputed
        is NaN where no formula gives the number. Printed is NaN for a correlation printed as nan.

    Raises:
        ValueError: source is none of the five.

    Example::

        tables("cs224n").query("table == 'Table 1' and metric == 'overall'")
    """
    frame = _read()
    known = list(frame["source"].unique())
    if source is not None and source not in known:
        raise ValueError(f"{source!r} is not a source. Known: {', '.join(known)}.")
    chosen = frame["source"].isin([source] if source else known)
    return frame[chosen].drop(columns="arithmetic").reset_index(drop=True)


def misprints():
    """Return the printed numbers that cannot be right, with the arithmetic in words.

    A number is listed when no rounding or truncation leads to it, neither of the numbers that it
    follows from nor of the result. A number with two decimals may stand for any value from half a
    hundredth below it to one hundredth above it.

    Returns:
        A DataFrame: source, table, row, column, split, metric, printed, recomputed, arithmetic.
    """
    frame = _read()
    return frame[frame["arithmetic"] != ""].drop(columns="note").reset_index(drop=True)


def cross_dataset():
    """Return Tables 4 and 5 of MML v2 with the names of methods and tasks that mmlkit uses.

    Returns:
        A DataFrame with a row per printed cell: method, trained_on, evaluated_on, split, metric,
        printed, recomputed, wrong. Accuracies are percents. An improvement at the end of a row has
        no evaluated_on, one in a footer has no trained_on. Wrong marks the cells of `misprints`.

    Example::

        cross_dataset().query("metric == 'accuracy'")
    """
    frame = _read().query("source == 'mml_v2' and table in ('Table 4', 'Table 5')")
    names = frame["row"].str.extract(r"^(.+?)(?:-(RTE|MNLI|QNLI|SNLI|QQP|MRPC|STS-B\*)| impr\.)$")
    frame = frame.assign(
        method=names[0].map(_METHODS),
        trained_on=names[1].map(_SETS),
        evaluated_on=frame["column"].map(_SETS),
        wrong=frame["arithmetic"] != "",
    )
    keys = ["method", "trained_on", "evaluated_on", "split", "metric"]
    return frame[[*keys, "printed", "recomputed", "wrong"]].reset_index(drop=True)


def _read():
    import pandas as pd

    path = Path(__file__).with_name("tables") / "published.csv"
    return pd.read_csv(
        path,
        keep_default_na=False,
        float_precision="round_trip",
        na_values={"printed": "", "recomputed": ""},
    )
