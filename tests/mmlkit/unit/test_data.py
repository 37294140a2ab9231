"""Every file layout of load_task, written out row by row, and the contents of a split."""

import dataclasses
import json
import warnings

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from mmlkit.data.loading import load_task, make_split
from mmlkit.data.tasks import Task, get_task


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes the files {name: text} and returns their folder."""

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(text.encode())
        return tmp_path

    return write


@pytest.fixture(autouse=True)
def warnings_as_errors():
    """Turn warnings into errors. A test that expects a warning uses pytest.warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_course_file_with_quotes_and_float_labels(folder):
    header = "\tid\tsentence1\tsentence2\tis_duplicate\n"
    train = header + '3\tabc\t"""Which"" is it?"\tWhich one?\t1.0\n9\tdef\tHow?\tWhy?\t0.0\n'
    data = load_task(
        "quora",
        folder({"quora-train.csv": train, "quora-dev.csv": header + "0\tghi\tWho?\tWhom?\t0.0\n"}),
    )
    assert data.train.texts == [('"Which" is it?', "Which one?"), ("How?", "Why?")]
    assert data.train.labels.tolist() == [1, 0]
    assert data.train.labels.dtype == "int64"
    assert data.train.ids == ["abc", "def"]
    assert data.test is None


def test_course_test_file_has_no_labels(folder):
    labelled = "\tid\tsentence\tsentiment\n0\tabc\t A lovely film . \t4\n1\tdef\t Dull . \t0\n"
    # The published file has an additional first column.
    student = "0\t\tid\tsentence\n1\t0.0\tb75\t Effective biopic\n"
    data = load_task(
        "sst",
        folder(
            {
                "ids-sst-train.csv": labelled,
                "ids-sst-dev.csv": labelled,
                "ids-sst-test-student.csv": student,
            }
        ),
    )
    assert data.train[0] == {"sentence": "A lovely film .", "label": "very positive", "id": "abc"}
    assert data.train.labels.tolist() == [4, 0]
    assert data.test.labels is None
    assert data.test[0] == {"sentence": "Effective biopic", "label": None, "id": "b75"}


def test_course_scores(folder):
    text = "\tid\tsentence1\tsentence2\tsimilarity\n0\ta\tone\ttwo\t2.75\n1\tb\tone\tone\t5.0\n"
    data = load_task("sts", folder({"sts-train.csv": text, "sts-dev.csv": text}))
    assert data.dev.labels.tolist() == [2.75, 5.0]
    assert data.dev.labels.dtype == "float32"
    assert data.dev[0]["label"] == 2.75


def test_course_file_takes_precedence_over_a_plain_one(folder):
    course = "\tid\tsentence\tsentiment\n0\ta\tcourse\t4\n"
    plain = "sentence,label\nplain,negative\n"
    data = load_task(
        "sst",
        folder(
            {
                "ids-sst-train.csv": course,
                "ids-sst-dev.csv": course,
                "train.csv": plain,
                "dev.csv": plain,
            }
        ),
    )
    assert data.train.texts == [("course",)]


def test_a_task_finds_the_folder_of_the_task_whose_data_it_shares(folder):
    """STS-B* reads the folder stsb; a folder of its own has priority."""
    rows = "sentence1,sentence2,label\na,b,{}\nc,d,3.0\n"
    files = {f"stsb/{split}.csv": rows.format(5.0) for split in ("train", "dev")}
    data = load_task("stsb_star", folder(files))
    assert data.train.texts == [("a", "b")] and data.train.labels.tolist() == [1]
    files |= {f"STSB_star/{split}.csv": rows.format(1.0) for split in ("train", "dev")}
    assert load_task("stsb_star", folder(files)).train.labels.tolist() == [0]


def test_glue_tsv_takes_quotes_literally(folder):
    header = "index\tsentence1\tsentence2\tlabel\n"
    text = header + '0\t"He said so.\tHe "did".\tnot_entailment\n1\tb\tc\tentailment\n'
    data = load_task("rte", folder({"RTE/train.tsv": text, "RTE/dev.tsv": text}))
    assert data.train.texts == [('"He said so.', 'He "did".'), ("b", "c")]
    assert data.train.labels.tolist() == [1, 0]


def test_glue_mrpc_has_its_own_columns(folder):
    text = (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tone\tuno\n0\t7\t9\tone\tdos\n"
    )
    data = load_task("mrpc", folder({"train.tsv": text, "dev.tsv": text}))
    assert data.train.texts == [("one", "uno"), ("one", "dos")]
    assert data.train.labels.tolist() == [1, 0]


def test_cola_without_a_header(folder):
    data = load_task(
        "cola",
        folder(
            {
                "CoLA/train.tsv": "gj04\t1\t\tThe cat sat.\ngj04\t0\t*\tCat the sat.\n",
                "CoLA/dev.tsv": "bc01\t1\t\tIt rains.\n",
                "CoLA/test.tsv": "index\tsentence\n0\tIt snows.\n",
            }
        ),
    )
    assert data.train.texts == [("The cat sat.",), ("Cat the sat.",)]
    assert data.train.labels.tolist() == [1, 0]
    assert data.test.texts == [("It snows.",)]
    assert data.test.labels is None


@pytest.mark.parametrize("header", ["", "premise\thypothesis\tlabel\n"])
def test_scitail_with_or_without_a_header(folder, header):
    text = header + "Pluto is cold.\tIt is cold.\tentails\nPluto is cold.\tIt is old.\tneutral\n"
    data = load_task("scitail", folder({"train.tsv": text, "dev.tsv": text}))
    assert data.train.texts == [("Pluto is cold.", "It is cold."), ("Pluto is cold.", "It is old.")]
    assert [data.train[i]["label"] for i in range(2)] == ["entails", "neutral"]


def test_scitail_accepts_entailment_for_its_label_entails():
    split = make_split("scitail", [(0, {"premise": "a", "hypothesis": "b", "label": "entailment"})])
    assert split[0]["label"] == "entails"


def test_jsonl(folder):
    lines = [
        {"sentence": "a day", "label": "positive", "idx": 7},
        {"sentence": "une journ\u00e9e", "label": "negative", "idx": 8},
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n"
    data = load_task("sst2", folder({"train.jsonl": text, "dev.jsonl": text}))
    assert data.train.texts == [("a day",), ("une journ\u00e9e",)]
    assert data.train.labels.tolist() == [1, 0]
    assert data.train.ids == [7, 8]


@pytest.mark.parametrize("mark", ["\u2028", "\x85"])
def test_jsonl_lines_end_at_newlines_only(folder, mark):
    """str.splitlines() also splits at these characters, which JSON allows inside a string."""
    text = json.dumps({"sentence": f"one{mark}two", "label": "positive"}, ensure_ascii=False) + "\n"
    assert load_task("sst2", folder({"train.jsonl": text, "dev.jsonl": text})).train.texts == [
        (f"one{mark}two",)
    ]


def test_parquet_with_integer_labels(tmp_path):
    for name, labels in (("train", [1, 0, 1]), ("validation", [0, 0, 1]), ("test", [-1, -1, -1])):
        pyarrow.parquet.write_table(
            pyarrow.table({"sentence": ["a", "b", "c"], "label": labels, "idx": [5, 6, 7]}),
            tmp_path / f"{name}-00000-of-00001.parquet",
        )
    with pytest.raises(
        ValueError,
        match=r"row 0, column 'label': found the integer label 1, and nothing says which of "
        r"\['negative', 'positive'\] it is. Pass the names in the order of the integers, for "
        r"instance labels=\('negative', 'positive'\)",
    ):
        load_task("sst2", tmp_path)
    data = load_task("sst2", tmp_path, labels=("negative", "positive"))
    assert data.train.labels.tolist() == [1, 0, 1]
    assert data.dev.ids == [5, 6, 7]
    assert data.test.labels is None
    assert load_task("sst2", tmp_path, labels=["positive", "Negative"]).train.labels.tolist() == [
        0,
        1,
        0,
    ]


def test_the_hubs_parquet_files_name_their_integers(tmp_path):
    """The schema written by `datasets` has the label names, here in a different order from ours."""
    features = {
        "label": {"names": ["positive", "negative"], "_type": "ClassLabel"},
        "sentence": {"dtype": "string", "_type": "Value"},
    }
    table = pyarrow.table({"sentence": ["a", "b", "c"], "label": [0, 1, -1]})
    table = table.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    for name in ("train", "validation"):
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.warns(UserWarning, match="rows without a label in column 'label': 1 of 3"):
        data = load_task("sst2", tmp_path)
    assert data.train.texts == [("a",), ("b",)] and data.train.labels.tolist() == [1, 0]
    pyarrow.parquet.write_table(
        table.set_column(1, "label", pyarrow.array([0, 1, 2])), tmp_path / "train.parquet"
    )
    with pytest.raises(ValueError, match="row 2, column 'label': found the integer label 2"):
        load_task("sst2", tmp_path)


@pytest.mark.parametrize("label", [1, "1", "1.0", 1.0])
def test_integer_labels_need_their_order(label):
    """The label orders of MNLI and RTE differ between the hub, MT-DNN and PALs."""
    rows = [(0, {"sentence1": "a", "sentence2": "b", "label": label})]
    with pytest.raises(
        ValueError,
        match=r"found the integer label '?1(.0)?'?, and nothing says which of "
        r"\['entailment', 'not_entailment'\]",
    ):
        make_split("rte", rows)
    assert make_split("rte", rows, labels=("entailment", "not_entailment")).labels.tolist() == [1]
    assert make_split("rte", rows, labels=("not_entailment", "entailment")).labels.tolist() == [0]


def test_a_wrong_label_order_is_refused(folder):
    rows = [(0, {"sentence": "a", "label": 2})]
    for wrong in (("negative",), ("negative", "negative"), ("bad", "good")):
        with pytest.raises(
            ValueError,
            match=r"labels is \[.*\], expected the names \['negative', 'positive'\], each once",
        ):
            make_split("sst2", rows, labels=wrong)
    with pytest.raises(ValueError, match=r"label 2 is not one of \['negative', 'positive'\]"):
        make_split("sst2", rows, labels=("negative", "positive"))


@pytest.mark.parametrize("text", ["sentence\tlabel\na\t1\nb\t0\n"])
def test_the_order_of_glues_own_files_is_known(folder, text):
    assert load_task(
        "sst2", folder({"train.tsv": text, "dev.tsv": text})
    ).train.labels.tolist() == [1, 0]


def test_parquet_scores_with_the_hubs_mark_for_unknown(tmp_path):
    """The hub's STS-B has -1.0 in every row of its test split."""
    for name, scores in (("train", [0.0, 3.8]), ("validation", [5.0, 2.5]), ("test", [-1.0, -1.0])):
        table = pyarrow.table(
            {
                "sentence1": ["a", "b"],
                "sentence2": ["c", "d"],
                "label": pyarrow.array(scores, pyarrow.float32()),
            }
        )
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    data = load_task("stsb", tmp_path)
    assert data.train.labels.tolist() == pytest.approx([0.0, 3.8])
    assert data.test.labels is None
    assert data.test.texts == [("a", "c"), ("b", "d")]


@pytest.mark.parametrize("unknown", ["-", -1, "-1", "", None, float("nan")])
def test_snli_rows_without_a_gold_label_are_dropped(unknown):
    labels = ["neutral", unknown, "contradiction"]
    rows = [
        (i, {"sentence1": "p", "sentence2": f"h{i}", "gold_label": label})
        for i, label in enumerate(labels)
    ]
    with pytest.warns(
        UserWarning, match=r"rows without a label in column 'gold_label': 1 of 3 \(row 1\)"
    ):
        split = make_split("snli", rows)
    assert split.texts == [("p", "h0"), ("p", "h2")]
    assert split.labels.tolist() == [1, 2]


def test_mnli_has_a_second_dev_split(folder):
    text = "premise,hypothesis,label\np,h,{}\n"
    data = load_task(
        "mnli",
        folder(
            {
                "train.csv": text.format("entailment"),
                "dev_matched.csv": text.format("neutral"),
                "dev_mismatched.csv": text.format("contradiction"),
            }
        ),
    )
    assert [
        split.labels.tolist() for split in (data.train, data.dev, data.more["dev_mismatched"])
    ] == [[0], [1], [2]]


@pytest.mark.parametrize(
    "label", ["not_entailment", "Not_Entailment", " not entailment ", "not-entailment"]
)
def test_label_names_in_any_spelling(label):
    assert make_split(
        "rte", [(0, {"sentence1": "a", "sentence2": "b", "label": label})]
    ).labels.tolist() == [1]


def test_labels_translates_foreign_names(folder):
    text = "sentence,label\na day,gut\nb day,schlecht\nc day,positive\n"
    data = load_task(
        "sst2",
        folder({"train.csv": text, "dev.csv": text}),
        labels={"gut": "positive", "Schlecht": "negative"},
    )
    assert data.train.labels.tolist() == [1, 0, 1]


def test_stsb_star_drops_scores_between_2_and_4():
    """MML v2, section 4.2: the scores 2 and 4 are kept."""
    scores = [0, 2, 2.001, 3, "3.999", "4.0", 5]
    rows = [
        (i, {"sentence1": f"a{i}", "sentence2": "b", "score": score})
        for i, score in enumerate(scores)
    ]
    split = make_split("stsb_star", rows)
    assert split.ids == [0, 1, 5, 6]
    assert split.labels.tolist() == [0, 0, 1, 1]
    assert split[2] == {"sentence1": "a5", "sentence2": "b", "label": "similar", "id": 5}


def test_limit_and_seed():
    one, again, other = (load_task("sst", limit=20, seed=seed) for seed in (1, 1, 2))
    whole = load_task("sst")
    assert [len(split) for split in (one.train, one.dev, one.test)] == [20, 20, 20]
    assert one.train.ids == again.train.ids != other.train.ids
    places = [whole.train.ids.index(i) for i in one.train.ids]
    assert places == sorted(set(places))  # rows keep their order, without duplicates
    assert [whole.train[place] for place in places] == [one.train[i] for i in range(20)]
    assert len(load_task("sst", limit=10**6).train) == len(whole.train)


def test_limit_draws_among_the_rows_with_a_label(tmp_path):
    """The same rows as a draw from the whole split; columns and ids stay with their rows."""
    lines = ["sentence,label,id,group", *(f"text {i},{i % 3 - 1},r{i},g{i}" for i in range(30))]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    options = dict(labels=("negative", "positive"))
    with pytest.warns(UserWarning, match="rows without a label in column 'label': 10 of 30"):
        whole = load_task("sst2", tmp_path, **options).train
        found = load_task("sst2", tmp_path, limit=6, seed=4, **options).train
    drawn = np.sort(np.random.default_rng(4).permutation(20)[:6])
    assert found.ids == [whole.ids[i] for i in drawn]
    assert found.columns["group"] == ["g" + one[1:] for one in found.ids]
    assert [found[i] for i in range(6)] == [whole[i] for i in drawn]


def test_only_the_texts_of_drawn_rows_are_checked():
    rows = [(i, {"sentence": f"text {i}", "label": "positive"}) for i in range(10)]
    drawn = sorted(np.random.default_rng(0).permutation(10)[:3])
    rows[[i for i in range(10) if i not in drawn][0]][1]["sentence"] = ""
    assert make_split("sst2", rows, limit=3).ids == drawn
    rows[drawn[1]][1]["sentence"] = ""
    with pytest.raises(ValueError, match=f"row {drawn[1]}, column 'sentence': found ''"):
        make_split("sst2", rows, limit=3)
    rows[9][1]["label"] = "wonderful"
    with pytest.raises(ValueError, match="row 9, column 'label': label 'wonderful' is not one of"):
        make_split("sst2", rows, limit=3)


def test_split_indexing_and_frame():
    rows = [
        (i, {"sentence1": f"a{i}", "sentence2": f"b{i}", "label": label, "idx": 10 * i})
        for i, label in enumerate(("not_entailment", "entailment", "not_entailment"))
    ]
    split = make_split("rte", rows, name="dev")
    assert len(split) == 3
    assert split[-1] == {"sentence1": "a2", "sentence2": "b2", "label": "not_entailment", "id": 20}
    assert split.frame().to_dict("list") == {
        "sentence1": ["a0", "a1", "a2"],
        "sentence2": ["b0", "b1", "b2"],
        "label": ["not_entailment", "entailment", "not_entailment"],
        "id": [0, 10, 20],
    }
    part = split.take([2, 1])
    assert (part.texts, part.labels.tolist(), part.ids, part.name) == (
        [("a2", "b2"), ("a1", "b1")],
        [1, 0],
        [20, 10],
        "dev",
    )
    assert [row["id"] for row in split] == [0, 10, 20]  # iteration stops after the last row


@pytest.mark.parametrize(
    ("name", "counts", "per_label"),
    [("sst", (940, 160, 160), (188, 32)), ("cfimdb", (224, 76, 52), (112, 38))],
)
def test_mini_data(name, counts, per_label):
    data = load_task(name, "mini")
    assert tuple(len(split) for split in (data.train, data.dev, data.test)) == counts
    for split, each in zip((data.train, data.dev), per_label, strict=True):
        assert split.frame()["label"].value_counts().to_dict() == dict.fromkeys(
            get_task(name).labels, each
        )
    assert data.test.labels is None
    texts = [row[0] for split in (data.train, data.dev, data.test) for row in split.texts]
    assert len(set(texts)) == len(texts)  # no sentence is in two splits
    assert data.source == "mini"


def test_a_split_in_several_shards_is_read_whole(tmp_path):
    import pyarrow
    import pyarrow.parquet

    for split, shards in {"train": 3, "validation": 1}.items():
        for i in range(shards):
            rows = [
                {"sentence1": f"{split} {i} {j} a", "sentence2": "b", "label": j} for j in range(2)
            ]
            pyarrow.parquet.write_table(
                pyarrow.Table.from_pylist(rows),
                tmp_path / f"{split}-{i:05d}-of-{shards:05d}.parquet",
            )
    data = load_task("rte", tmp_path, labels=("entailment", "not_entailment"))
    assert [text for text, _ in data.train.texts] == [
        f"train {i} {j} a" for i in range(3) for j in range(2)
    ]
    assert data.train.labels.tolist() == [0, 1] * 3 and len(data.dev) == 2


CUSTOM = Task("mine", text_columns=("text",), labels=("no", "yes"))


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".csv", 'text,label,id\n"a, b",Yes,7\nc,no,8\n'),
        (".tsv", "text\tlabel\tid\na, b\tYes\t7\nc\tno\t8\n"),
        (
            ".jsonl",
            '{"text": "a, b", "label": "Yes", "id": 7}\n{"text": "c", "label": "no", "id": 8}\n',
        ),
    ],
)
@pytest.mark.parametrize("dev", ["dev", "validation"])
def test_a_custom_task(folder, ending, text, dev):
    data = load_task(
        CUSTOM,
        source=folder({f"train{ending}": text, f"{dev}{ending}": text, f"test{ending}": text}),
    )
    assert data.task is CUSTOM and data.train.texts == data.test.texts == [("a, b",), ("c",)]
    assert data.dev.labels.tolist() == [1, 0] and list(map(str, data.dev.ids)) == ["7", "8"]
    assert data.train[0]["label"] == "yes"


def test_integer_labels_of_a_custom_task_need_their_order(tmp_path):
    for name in ("train", "dev"):
        table = pyarrow.table({"text": ["a", "b", "c"], "label": [0, 1, 1]})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match="found the integer label 0"):
        load_task(CUSTOM, tmp_path)
    assert load_task(CUSTOM, tmp_path, labels=("no", "yes")).train.labels.tolist() == [0, 1, 1]
    assert load_task(CUSTOM, tmp_path, labels=("yes", "no")).train.labels.tolist() == [1, 0, 0]
    assert load_task(Task("mine", ("text",), (0, 1)), tmp_path).train.labels.tolist() == [0, 1, 1]


def test_a_custom_regression_accepts_any_finite_score(folder):
    """-1 is a valid score here. In STS-B, with scores from 0 to 5, -1 marks an unknown score."""
    text = "first,second,label\na,b,-1\nc,d,1e3\n"
    data = load_task(
        Task("score", ("first", "second"), kind="regression"),
        folder({"train.csv": text, "dev.csv": text}),
    )
    assert data.train.labels.tolist() == [-1.0, 1000.0] and data.train.labels.dtype == "float32"
    assert data.train.texts == [("a", "b"), ("c", "d")] and data.train[1]["label"] == 1000.0


def test_columns_of_a_custom_task_under_other_names(folder):
    task = Task(
        "mine", ("text",), ("no", "yes"), aliases={"text": ("body",), "label": ("verdict",)}
    )
    text = "body,verdict\na,yes\n"
    assert load_task(task, folder({"train.csv": text, "dev.csv": text})).train[0] == {
        "text": "a",
        "label": "yes",
        "id": 2,
    }


@pytest.mark.parametrize("names", [["no", "yes"], ["yes", "no"], None])
def test_a_custom_hub_data_set(monkeypatch, names):
    """The labels follow the hub's class names, in any order."""
    from datasets import ClassLabel, Dataset, DatasetDict

    requests = []
    columns = {"text": ["a", "b"], "verdict": [0, 1] if names else ["no", "yes"]}
    rows = Dataset.from_dict(columns)
    rows = rows.cast_column("verdict", ClassLabel(names=names)) if names else rows
    monkeypatch.setattr(
        "mmlkit.data.loading.load_hub_dataset",
        lambda *what: requests.append(what) or DatasetDict({"train": rows, "test": rows}),
    )
    task = Task(
        "mine",
        ("text",),
        ("no", "yes"),
        hub="me/mine",
        aliases={"label": ("verdict",)},
        hub_splits={"train": "train", "dev": "test"},
    )
    data = load_task(task, source="hub")
    assert requests == [("me/mine", None)] and data.train.texts == [("a",), ("b",)]
    assert data.dev.labels.tolist() == ([1, 0] if names == ["yes", "no"] else [0, 1])
    assert load_task(dataclasses.replace(task, hub=("me/mine", "small")), "hub").source == "hub"
    assert requests[1] == ("me/mine", "small")


def test_label_text_is_used_instead_of_integers(folder):
    """SetFit's data sets have both columns. The integers alone would need a label order."""
    text = "text,label,label_text\na,4,very positive\nb,0,very negative\n"
    assert load_task("sst", folder({"train.csv": text, "dev.csv": text})).train.labels.tolist() == [
        4,
        0,
    ]


def test_mt_dnns_canonical_files(folder):
    """The files have no header and no quoting. The labels of GLUE's test files are placeholders."""
    train = '7\tnot_entailment\t"He said so.\tHe "did".\n8\tentailment\tb\tc\n'
    test = "1\tnot_entailment\ta\tb\n2\tnot_entailment\tc\td\n"
    place = folder(
        {
            "rte_train.tsv": train,
            "rte_dev.tsv": train,
            "rte_test.tsv": test,
            "train.tsv": "another task's file",
        }
    )
    with pytest.warns(
        UserWarning,
        match="rte_test.tsv: all rows have the same label, which is MT-DNN's placeholder",
    ):
        data = load_task("rte", source=place)
    assert data.train.texts == [('"He said so.', 'He "did".'), ("b", "c")]
    assert data.train.labels.tolist() == [1, 0] and data.train.ids == ["7", "8"]
    assert data.test.labels is None and data.test.texts == [("a", "b"), ("c", "d")]


def test_canonical_files_with_integer_labels(folder):
    """The order of GLUE's integers is known (MT-DNN calls SST-2 sst). Others must be given."""
    text = "0\t1\ta fine film\n1\t0\ta dull film\n"
    place = folder(
        {f"{task}_{split}.tsv": text for task in ("sst", "mine") for split in ("train", "dev")}
    )
    data = load_task("sst2", place)
    assert data.train.texts == [
        ("a fine film",),
        ("a dull film",),
    ] and data.train.labels.tolist() == [1, 0]
    with pytest.raises(
        ValueError, match="mine_train.tsv, row 1, column 'label': found the integer label '1'"
    ):
        load_task(CUSTOM, place)
    assert load_task(CUSTOM, place, labels=("yes", "no")).train.labels.tolist() == [0, 1]


def test_canonical_mnli_and_cola_and_scores(folder):
    """cola_train.tsv has three columns and CoLA's own train.tsv has four. Neither has a header."""
    pair = "0\t{}\tp\th\n"
    place = folder(
        {
            "mnli_train.tsv": pair.format("neutral"),
            "mnli_matched_dev.tsv": pair.format("entailment"),
            "mnli_mismatched_dev.tsv": pair.format("contradiction"),
            "cola_train.tsv": "0\t1\ta cat\n",
            "cola_dev.tsv": "0\t0\tcat a\n",
            "stsb_train.tsv": pair.format("3.8"),
            "stsb_dev.tsv": pair.format("5"),
            "qnli_train.tsv": "id\tlabel\tquestion\tsentence\n0\tentailment\tq\ts\n",
            "qnli_dev.tsv": "0\tentailment\tq\ts\n",
        }
    )
    data = load_task("mnli", place)
    assert [
        split.labels.tolist() for split in (data.train, data.dev, data.more["dev_mismatched"])
    ] == [[1], [0], [2]]
    assert load_task("cola", place).train[0] == {
        "sentence": "a cat",
        "label": "acceptable",
        "id": "0",
    }
    assert load_task("stsb", place).train.labels.tolist() == pytest.approx([3.8])
    data = load_task("qnli", place)  # a header line is accepted too
    assert (
        data.train[0]
        == data.dev[0]
        == {"question": "q", "sentence": "s", "label": "entailment", "id": "0"}
    )


def split_of(task, *rows, **options):
    return make_split(
        task, enumerate({"text": text, "label": label} for text, label in rows), **options
    )


def test_names_that_are_integers_are_matched_by_name():
    """An order of integers that contradicts the names would move every label."""
    stars = Task("stars", ("text",), ("1", "2", "3", "4", "5"))
    found = split_of(stars, *(("x", number) for number in range(1, 6)), name="train")
    assert found.labels.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(
        ValueError, match="labels says that 1 in the file means '2', but '1' is its"
    ):
        split_of(stars, ("x", 1), labels=stars.labels)
    files = {"train": "stars.csv"}  # a known file has a known order of integers, but for these
    known = dataclasses.replace(stars, files=files)
    assert split_of(known, ("x", 2), place="stars.csv", name="train").labels.tolist() == [1]
    floats = Task("floats", ("text",), (1.0, 2.0, 3.0))
    found = split_of(floats, *(("x", one) for one in ("1", "2.0", 3, 3.0)), name="train")
    assert found.labels.tolist() == [0, 1, 2, 2]
    with pytest.raises(ValueError, match="that 1 in the file means '2.0', but '1' is itself a"):
        split_of(floats, ("x", 1), labels=floats.labels)
    same = Task("same", ("text",), ("0", "1"))
    assert split_of(same, ("x", 1), labels=same.labels).labels.tolist() == [1]


@pytest.mark.parametrize(
    ("labels", "given", "values"),
    [
        (("negative", "positive"), {-1: "negative", 1: "positive"}, (-1, 1, -1)),
        (("-1", "0", "1"), None, (-1, 0, 1)),
        (("-", "+"), None, ("-", "+", "-")),
        (("1.0", "2.0"), None, (1.0, 2.0, "1.0")),
    ],
)
def test_a_named_label_is_never_taken_for_unknown(labels, given, values):
    task = Task("signs", ("text",), labels)
    found = split_of(task, *(("x", value) for value in values), labels=given, name="train")
    names = {str(key): name for key, name in (given or {}).items()}
    assert [labels[i] for i in found.labels] == [names.get(str(one), str(one)) for one in values]


def test_the_first_row_does_not_decide_on_the_columns():
    rows = [
        {"text": "a"},
        {"text": "b", "label": "yes", "genre": "x"},
        {"text": "c", "label": "no"},
    ]
    with pytest.warns(UserWarning, match=r"1 of 3 \(row 0\); they were dropped"):
        found = make_split(Task("mine", ("text",), ("no", "yes")), enumerate(rows))
    assert found.labels.tolist() == [1, 0] and found.columns == {"genre": ["x", None]}


def test_labelled_rows_without_a_text_are_dropped_from_the_hub(monkeypatch):
    """GLUE's QQP has two such rows. Those of a test split need a prediction, and stop."""
    from datasets import Dataset, DatasetDict

    rows = Dataset.from_dict({"text": ["a", " ", "c"], "label": ["no", "yes", "yes"]})
    both = DatasetDict({"train": rows, "test": rows})
    monkeypatch.setattr("mmlkit.data.loading.load_hub_dataset", lambda *what: both)
    splits = {"train": "train", "dev": "test"}
    task = Task("mine", ("text",), ("no", "yes"), hub="me/mine", hub_splits=splits)
    with pytest.warns(UserWarning, match=r"rows without a text: 1 of 3 \(row 1\)"):
        data = load_task(task, "hub", limit=2)
    assert data.train.texts == [("a",), ("c",)] and data.train.labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="found ' ', expected some text"):
        load_task(task, "hub", on_bad_row="refuse")


def test_a_mask_selects_rows():
    task = Task("mine", ("text",), ("no", "yes"))
    split = split_of(task, ("a", "no"), ("b", "yes"), ("c", "yes"), name="train")
    for mask in ([True, False, True], np.array([True, False, True])):
        found = split.take(mask)
        assert found.texts == [("a",), ("c",)] and found.labels.tolist() == [0, 1]
    assert split.take(split.frame()["label"] == "yes").texts == [("b",), ("c",)]
    for wrong in ([True, False], np.zeros(0, bool)):
        with pytest.raises(ValueError, match="a mask of . values for 3 rows"):
            split.take(wrong)
    for wrong in ([0.9], [1.0, 0.0, 1.0], ["2"]):
        with pytest.raises(ValueError, match="expected row numbers or a mask"):
            split.take(wrong)
    assert len(split.take([])) == 0 and split.take(np.array([2])).texts == [("c",)]


def test_a_text_column_may_have_the_name_of_other_tasks_labels():
    task = Task("mine", ("score", "label_text"), ("no", "yes"))
    row = {"score": "a", "label_text": "b", "label": "yes"}
    found = make_split(task, [(0, row)], name="train")
    assert found.texts == [("a", "b")] and found.labels.tolist() == [1]


def test_another_name_of_a_column_may_be_a_plain_text():
    task = Task("mine", ("text",), ("no", "yes"), aliases={"label": "target"})
    assert task.aliases == {"label": ("target",)}
    own = Task("mine", ("target", "text"), ("no", "yes"), aliases={"label": ("target", "class")})
    assert own.names("label") == ("label", "class")  # a text column is no other name of the label
    qqp = dataclasses.replace(get_task("qqp"), text_columns=("sentence1", "sentence2"))
    assert "question1" in qqp.names("sentence1")
    rows = [(0, {"text": "a", "target": "yes"})]
    assert make_split(task, rows, name="train").labels.tolist() == [1]


def test_the_names_of_integers_may_come_from_an_iterator(tmp_path):
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("text,label\na,1\nb,0\n")
    data = load_task(CUSTOM, tmp_path, labels=(one for one in CUSTOM.labels))
    assert data.train.labels.tolist() == data.dev.labels.tolist() == [1, 0]


def test_other_columns_of_a_file_are_kept():
    """A row is its texts, its label and its id; no other column replaces one of these."""
    rows = [
        {"text": "Fine.", "label": 1, "label_text": "positive", "source": "a", "sentence": "x"},
        {"text": "Dull.", "label": 0, "label_text": "negative", "source": "b", "sentence": "y"},
    ]
    split = make_split(
        "sst2", [(i, {**row, "sentence": row["text"]}) for i, row in enumerate(rows)]
    )
    assert split.columns == {"text": ["Fine.", "Dull."], "source": ["a", "b"]}
    assert split[1] == {
        "sentence": "Dull.",
        "label": "negative",
        "id": 1,
        "text": "Dull.",
        "source": "b",
    }
    assert split.take([1]).columns["source"] == ["b"] and split.frame()["source"].tolist() == [
        "a",
        "b",
    ]
    assert load_task("rte").dev.take([0])[0].keys() >= {"group", "tier", "label", "sentence2"}
