"""Writes data/mini/ from the hand-written cores in data/cores/. Deterministic: python data/build.py changes nothing if they agree.

A core is a .jsonl file: one object per line with the text columns and a label, written by hand. Lines that share a "group"
(counterfactual twins, one premise with several hypotheses) always fall into the same split. Which group falls where is a
matter of its hash within its label, so adding a line moves few others.
"""

import csv
import hashlib
import io
import json
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARES = {      # task: rows per label and split, in the core's order of labels
    "sst": {"dev": 32, "test": 32},
    "cfimdb": {"dev": 30, "test": 20},
}


def read_core(task):
    """The rows of a core file, as dicts."""
    lines = (HERE / "cores" / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def _hash(text):
    return hashlib.sha256(text.encode()).hexdigest()


def divide(rows, shares):
    """{split: rows}: groups in the order of their hash fill test, then dev, until each label has its share; the rest is train."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.get("group") or row["sentence"]].append(row)
    splits, filled = {"train": [], "dev": [], "test": []}, defaultdict(int)
    for key in sorted(groups, key=_hash):
        members = groups[key]
        fits = [split for split in ("test", "dev")
                if all(filled[split, row["label"]] + 1 <= shares[split] for row in members)]
        split = fits[0] if fits else "train"
        for row in members:
            filled[split, row["label"]] += 1
            splits[split].append(row)
    return {split: sorted(members, key=lambda row: _hash("order" + row["sentence"])) for split, members in splits.items()}


def render(rows, columns):
    """Rows as csv text with an idx column."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*columns, "idx"])
    writer.writerows([*[row[column] for column in columns], i] for i, row in enumerate(rows))
    return out.getvalue()


def files():
    """{path: text} of everything the builder writes. Test labels lie apart, in data/test_labels/."""
    made = {}
    for task, shares in SHARES.items():
        splits = divide(read_core(task), shares)
        for split, rows in splits.items():
            columns = ["sentence"] if split == "test" else ["sentence", "label"]
            made[HERE / "mini" / task / f"{split}.csv"] = render(rows, columns)
        made[HERE / "test_labels" / f"{task}.csv"] = render(splits["test"], ["label"])
    return made


def main():
    """Writes the files that differ, and says which."""
    for path, text in files().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {path.relative_to(HERE)}", file=sys.stderr)


if __name__ == "__main__":
    main()
