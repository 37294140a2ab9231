"""Every file layout of load_task, written out row by row, and the contents of a split."""

import dataclasses
import json
import warnings

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from mmlkit.data.loading import load_task, make_split, task_data
from mmlkit.data.tasks import Task, get_task

CUSTOM = Task("mine", text_columns=("text",), labels=("no", "yes"))


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes the files {name: text} and returns their folder.

    A name with "{}" is that of the train and of the dev file.
    """

    def write(files):
        for name, text in files.items():
            for split in ("train", "dev") if "{}" in name else ("",):
                path = tmp_path / name.format(split)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
        return tmp_path

    return write


@pytest.fixture(autouse=True)
def warnings_as_errors():
    """Turn warnings into errors. A test that expects a warning uses pytest.warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def labels_of(split):
    return [split[i]["label"] for i in range(len(split))]


# ---- the formats of files ----


def test_course_file_with_quotes_and_float_labels(folder):
    header = "\tid\tsentence1\tsentence2\tis_duplicate\n"
    text = header + '3\tabc\t"""Which"" is it?"\tWhich one?\t1.0\n9\tdef\tHow?\tWhy?\t0.0\n'
    data = load_task("quora", folder({"quora-{}.csv": text}))
    assert data.train.texts == [('"Which" is it?', "Which one?"), ("How?", "Why?")]
    assert data.train.labels.tolist() == [1, 0] and data.train.labels.dtype == "int64"
    assert data.train.ids == ["abc", "def"] and data.test is None


def test_course_test_file_has_no_labels(folder):
    labelled = "\tid\tsentence\tsentiment\n0\tabc\t A lovely film . \t4\n1\tdef\t Dull . \t0\n"
    # The published file has an additional first column.
    student = "0\t\tid\tsentence\n1\t0.0\tb75\t Effective biopic\n"
    files = {"ids-sst-{}.csv": labelled, "ids-sst-test-student.csv": student}
    with pytest.warns(UserWarning, match="no row is 'negative', 'neutral', 'positive'"):
        data = load_task("sst", folder(files))
    assert data.train[0] == {"sentence": "A lovely film .", "label": "very positive", "id": "abc"}
    assert data.train.labels.tolist() == [4, 0] and data.test.labels is None
    assert data.test[0] == {"sentence": "Effective biopic", "label": None, "id": "b75"}


def test_course_scores(folder):
    text = "\tid\tsentence1\tsentence2\tsimilarity\n0\ta\tone\ttwo\t2.75\n1\tb\tone\tone\t5.0\n"
    data = load_task("sts", folder({"sts-{}.csv": text}))
    assert data.dev.labels.tolist() == [2.75, 5.0] and data.dev.labels.dtype == "float32"
    assert data.dev[0]["label"] == 2.75


def test_course_file_takes_precedence_over_a_plain_one(folder):
    course = "\tid\tsentence\tsentiment\n0\ta\tcourse\t4\n"
    plain = "sentence,label\nplain,negative\n"
    data = load_task("sst", folder({"ids-sst-{}.csv": course, "{}.csv": plain}))
    assert data.train.texts == [("course",)]


def test_a_task_finds_the_folder_of_the_task_whose_data_it_shares(folder):
    """STS-B* reads the folder stsb; a folder of its own has priority."""
    rows = "sentence1,sentence2,label\na,b,{}\nc,d,3.0\n"
    data = load_task("stsb_star", folder({"stsb/{}.csv": rows.format(5.0)}))
    assert data.train.texts == [("a", "b")] and data.train.labels.tolist() == [1]
    place = folder({"STSB_star/{}.csv": rows.format(1.0)})
    assert load_task("stsb_star", place).train.labels.tolist() == [0]


def test_glue_tsv_takes_quotes_literally(folder):
    header = "index\tsentence1\tsentence2\tlabel\n"
    text = header + '0\t"He said so.\tHe "did".\tnot_entailment\n1\tb\tc\tentailment\n'
    data = load_task("rte", folder({"RTE/{}.tsv": text}))
    assert data.train.texts == [('"He said so.', 'He "did".'), ("b", "c")]
    assert data.train.labels.tolist() == [1, 0]


def test_glue_mrpc_has_its_own_columns(folder):
    text = (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tone\tuno\n0\t7\t9\tone\tdos\n"
    )
    data = load_task("mrpc", folder({"{}.tsv": text}))
    assert data.train.texts == [("one", "uno"), ("one", "dos")]
    assert data.train.labels.tolist() == [1, 0]


def test_cola_without_a_header(folder):
    files = {
        "CoLA/train.tsv": "gj04\t1\t\tThe cat sat.\ngj04\t0\t*\tCat the sat.\n",
        "CoLA/dev.tsv": "bc01\t1\t\tIt rains.\n",
        "CoLA/test.tsv": "index\tsentence\n0\tIt snows.\n",
    }
    data = load_task("cola", folder(files))
    assert data.train.texts == [("The cat sat.",), ("Cat the sat.",)]
    assert data.train.labels.tolist() == [1, 0]
    assert data.test.texts == [("It snows.",)] and data.test.labels is None


@pytest.mark.parametrize("header", ["", "premise\thypothesis\tlabel\n"])
def test_scitail_with_or_without_a_header(folder, header):
    text = header + "Pluto is cold.\tIt is cold.\tentailment\nPluto is cold.\tIt is old.\tneutral\n"
    data = load_task("scitail", folder({"{}.tsv": text}))
    assert data.train.texts == [("Pluto is cold.", "It is cold."), ("Pluto is cold.", "It is old.")]
    assert labels_of(data.train) == ["entails", "neutral"]


def test_mt_dnns_canonical_files(folder):
    """The files have no header and no quoting. The labels of GLUE's test files are placeholders."""
    train = '7\tnot_entailment\t"He said so.\tHe "did".\n8\tentailment\tb\tc\n'
    test = "1\tnot_entailment\ta\tb\n2\tnot_entailment\tc\td\n"
    files = {"rte_{}.tsv": train, "rte_test.tsv": test, "train.tsv": "another task's file"}
    data = load_task("rte", folder(files))
    assert data.train.texts == [('"He said so.', 'He "did".'), ("b", "c")]
    assert data.train.labels.tolist() == [1, 0] and data.train.ids == ["7", "8"]
    assert data.test.labels is None and data.test.texts == [("a", "b"), ("c", "d")]


def test_canonical_files_with_integer_labels(folder):
    """The order of GLUE's integers is known (MT-DNN calls SST-2 sst). Others must be given."""
    text = "0\t1\ta fine film\n1\t0\ta dull film\n"
    place = folder({"sst_{}.tsv": text, "mine_{}.tsv": text})
    assert load_task("sst2", place).train.labels.tolist() == [1, 0]
    with pytest.raises(ValueError, match="mine_train.tsv, row 1, column 'label': found '1'"):
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
            "cola_{}.tsv": "0\t1\ta cat\n",
            "stsb_{}.tsv": pair.format("3.8"),
            "qnli_train.tsv": "id\tlabel\tquestion\tsentence\n0\tentailment\tq\ts\n",
            "qnli_dev.tsv": "0\tentailment\tq\ts\n",
        }
    )
    data = load_task("mnli", place)
    splits = (data.train, data.dev, data.more["dev_mismatched"])
    assert [split.labels.tolist() for split in splits] == [[1], [0], [2]]
    row = {"sentence": "a cat", "label": "acceptable", "id": "0"}
    assert load_task("cola", place).train[0] == row
    assert load_task("stsb", place).train.labels.tolist() == pytest.approx([3.8])
    row = {"question": "q", "sentence": "s", "label": "entailment", "id": "0"}
    assert load_task("qnli", place).train[0] == load_task("qnli", place).dev[0] == row


@pytest.mark.parametrize("mark", ["", "\u2028", "\x85"])
def test_jsonl_lines_end_at_newlines_only(folder, mark):
    """str.splitlines() also splits at these characters, which JSON allows inside a string."""
    lines = [
        {"sentence": f"une journ\u00e9e{mark} b", "label": "positive", "idx": 7},
        {"sentence": "a day", "label": "negative", "idx": 8},
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n"
    data = load_task("sst2", folder({"{}.jsonl": text}))
    assert data.train.texts == [(f"une journ\u00e9e{mark} b",), ("a day",)]
    assert data.train.labels.tolist() == [1, 0] and data.train.ids == [7, 8]


def write_parquet(path, metadata=None, **columns):
    table = pyarrow.table(columns)
    if metadata:
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    pyarrow.parquet.write_table(table, path)


def test_parquet_with_integer_labels(tmp_path):
    for name, labels in (("train", [1, 0, 1]), ("validation", [0, 0, 1]), ("test", [-1, -1, -1])):
        path = tmp_path / f"{name}-00000-of-00001.parquet"
        write_parquet(path, sentence=["a", "b", "c"], label=labels, idx=[5, 6, 7])
    with pytest.raises(
        ValueError, match=r"row 0, column 'label': found '1', expected one of \['negative', 'pos"
    ):
        load_task("sst2", tmp_path)
    data = load_task("sst2", tmp_path, labels=("negative", "positive"))
    assert data.train.labels.tolist() == [1, 0, 1] and data.dev.ids == [5, 6, 7]
    assert data.test.labels is None
    data = load_task("sst2", tmp_path, labels=["positive", "Negative"])
    assert data.train.labels.tolist() == [0, 1, 0]


def test_the_hubs_parquet_files_name_their_integers(tmp_path):
    """The schema written by `datasets` has the label names, here in a different order from ours."""
    label = {"names": ["positive", "negative"], "_type": "ClassLabel"}
    features = {"label": label, "sentence": {"dtype": "string", "_type": "Value"}}
    metadata = {"info": {"features": features}}
    for name in ("train", "validation"):
        path = tmp_path / f"{name}.parquet"
        write_parquet(path, metadata, sentence=["a", "b", "c"], label=[0, 1, -1])
    with pytest.warns(UserWarning, match="rows without a label: 1 of 3"):
        data = load_task("sst2", tmp_path)
    assert data.train.texts == [("a",), ("b",)] and data.train.labels.tolist() == [1, 0]
    write_parquet(tmp_path / "train.parquet", metadata, sentence=["a", "b", "c"], label=[0, 1, 2])
    with pytest.raises(ValueError, match="row 2, column 'label': found '2'"):
        load_task("sst2", tmp_path)


def test_parquet_scores_with_the_hubs_mark_for_unknown(tmp_path):
    """The hub's STS-B has -1.0 in every row of its test split."""
    for name, scores in (("train", [0.0, 3.8]), ("validation", [5.0, 2.5]), ("test", [-1.0, -1.0])):
        label = pyarrow.array(scores, pyarrow.float32())
        path = tmp_path / f"{name}.parquet"
        write_parquet(path, sentence1=["a", "b"], sentence2=["c", "d"], label=label)
    data = load_task("stsb", tmp_path)
    assert data.train.labels.tolist() == pytest.approx([0.0, 3.8])
    assert data.test.labels is None and data.test.texts == [("a", "c"), ("b", "d")]


def test_a_split_in_several_shards_is_read_whole(tmp_path):
    for split, shards in {"train": 3, "validation": 1}.items():
        for i in range(shards):
            path = tmp_path / f"{split}-{i:05d}-of-{shards:05d}.parquet"
            write_parquet(path, sentence1=[f"{i} a", f"{i} b"], sentence2=["c", "d"], label=[0, 1])
    data = load_task("rte", tmp_path, labels=("entailment", "not_entailment"))
    assert [text for text, _ in data.train.texts] == ["0 a", "0 b", "1 a", "1 b", "2 a", "2 b"]
    assert data.train.labels.tolist() == [0, 1] * 3 and len(data.dev) == 2


# ---- labels ----


@pytest.mark.parametrize("label", [1, "1", "1.0", 1.0])
def test_integer_labels_need_their_order(label):
    """The label orders of MNLI and RTE differ between the hub, MT-DNN and PALs."""
    rows = [{"sentence1": "a", "sentence2": "b", "label": label}]
    with pytest.raises(ValueError, match=r"found '1(.0)?', expected one of \['entailment', 'not_"):
        make_split("rte", rows)
    assert make_split("rte", rows, labels=("entailment", "not_entailment")).labels.tolist() == [1]
    assert make_split("rte", rows, labels=("not_entailment", "entailment")).labels.tolist() == [0]


def test_a_wrong_label_order_is_refused():
    rows = [{"sentence": "a", "label": 2}]
    for wrong in (("negative",), ("negative", "negative"), ("bad", "good"), {2: "great"}):
        with pytest.raises(ValueError, match=r"does not fit the names \['negative', 'positive'\]"):
            make_split("sst2", rows, labels=wrong)
    with pytest.raises(ValueError, match=r"found '2', expected one of \['negative', 'positive'\]"):
        make_split("sst2", rows, labels=("negative", "positive"))


def test_integers_from_minus_one_on_have_no_order():
    """-1 is the hub's mark for unknown; dropped here, it would move the other labels by one."""
    task = Task("moods", ("text",), ("bad", "neutral", "good"))
    rows = [{"text": "a", "label": label} for label in (-1, 0, 1)]
    with pytest.raises(ValueError, match="a dict from its labels to names"):
        make_split(task, rows, labels=task.labels)
    found = make_split(task, rows, labels={-1: "bad", 0: "neutral", 1: "good"})
    assert labels_of(found) == ["bad", "neutral", "good"]


@pytest.mark.parametrize("unknown", ["-", -1, "-1", "", None, float("nan")])
def test_snli_rows_without_a_gold_label_are_dropped(unknown):
    labels = ["neutral", unknown, "contradiction"]
    rows = [
        {"sentence1": "p", "sentence2": f"h{i}", "gold_label": label}
        for i, label in enumerate(labels)
    ]
    with pytest.warns(UserWarning, match=r"rows without a label: 1 of 3 \(row 1\)"):
        split = make_split("snli", rows)
    assert split.texts == [("p", "h0"), ("p", "h2")] and split.labels.tolist() == [1, 2]


@pytest.mark.parametrize("label", ["Not_Entailment", " not entailment ", "not-entailment"])
def test_label_names_in_any_spelling(label):
    rows = [{"sentence1": "a", "sentence2": "b", "label": label}]
    assert make_split("rte", rows).labels.tolist() == [1]


def test_labels_translates_foreign_names(folder):
    text = "sentence,label\na day,gut\nb day,schlecht\nc day,positive\n"
    labels = {"gut": "positive", "Schlecht": "negative"}
    data = load_task("sst2", folder({"{}.csv": text}), labels=labels)
    assert data.train.labels.tolist() == [1, 0, 1]


def test_stsb_star_drops_scores_between_2_and_4():
    """MML v2, section 4.2: the scores 2 and 4 are kept."""
    scores = [0, 2, 2.001, 3, "3.999", "4.0", 5]
    rows = [
        {"sentence1": f"a{i}", "sentence2": "b", "score": score} for i, score in enumerate(scores)
    ]
    split = make_split("stsb_star", rows)
    assert split.ids == [0, 1, 5, 6] and split.labels.tolist() == [0, 0, 1, 1]
    assert split[2] == {"sentence1": "a5", "sentence2": "b", "label": "similar", "id": 5}


def test_a_custom_regression_accepts_any_finite_score():
    """-1 is a valid score here. In STS-B, with scores from 0 to 5, -1 marks an unknown score."""
    rows = [{"first": "a", "second": "b", "label": score} for score in ("-1", "1e3")]
    split = make_split(Task("score", ("first", "second"), kind="regression"), rows, name="train")
    assert split.labels.tolist() == [-1.0, 1000.0] and split.labels.dtype == "float32"
    assert split[1]["label"] == 1000.0


def test_label_text_is_used_instead_of_integers():
    """SetFit's data sets have both columns. The integers alone would need a label order."""
    rows = [
        {"text": "a", "label": 4, "label_text": "very positive"},
        {"text": "b", "label": 0, "label_text": "very negative"},
    ]
    assert make_split("sst", rows).labels.tolist() == [4, 0]


def split_of(task, *rows, **options):
    return make_split(task, [{"text": text, "label": label} for text, label in rows], **options)


def test_names_that_are_integers_are_matched_by_name():
    """An order of integers that contradicts the names would move every label."""
    stars = Task("stars", ("text",), ("1", "2", "3", "4", "5"))
    found = split_of(stars, *(("x", number) for number in range(1, 6)), name="train")
    assert found.labels.tolist() == [0, 1, 2, 3, 4]
    floats = Task("floats", ("text",), (1.0, 2.0, 3.0))
    found = split_of(floats, *(("x", one) for one in ("1", "2.0", 3, 3.0)), name="train")
    assert found.labels.tolist() == [0, 1, 2, 2]
    for task in (stars, floats):
        with pytest.raises(ValueError, match="does not fit the names"):
            split_of(task, ("x", 1), labels=task.labels)
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
    assert labels_of(found) == [names.get(str(one), str(one)) for one in values]


# ---- columns ----


def test_columns_under_other_names():
    others = {"text": ("body",), "label": ("verdict",)}
    task = Task("mine", ("text",), ("no", "yes"), aliases=others)
    found = make_split(task, [{"body": "a", "verdict": "yes"}])
    assert found[0] == {"text": "a", "label": "yes", "id": 0}
    own = Task("mine", ("target", "text"), ("no", "yes"), aliases={"label": ("target", "class")})
    assert own.names("label") == ("label", "class")  # a text column is no other name of the label
    qqp = dataclasses.replace(get_task("qqp"), text_columns=("sentence1", "sentence2"))
    assert "question1" in qqp.names("sentence1")
    task = Task("mine", ("score", "label_text"), ("no", "yes"))
    found = make_split(task, [{"score": "a", "label_text": "b", "label": "yes"}], name="train")
    assert found.texts == [("a", "b")] and found.labels.tolist() == [1]


def test_other_columns_are_kept():
    """A row is its texts, its label and its id; no other column replaces one of these."""
    rows = [
        {"text": "Fine.", "label": 1, "label_text": "positive", "source": "a", "sentence": "Fine."},
        {"text": "Dull.", "label": 0, "label_text": "negative", "sentence": "Dull.", "": 4},
    ]
    split = make_split("sst2", rows)
    assert split.columns["text"] == ["Fine.", "Dull."] and split.columns.keys() == {
        "text",
        "source",
    }
    row = {"sentence": "Fine.", "label": "positive", "id": 0, "text": "Fine.", "source": "a"}
    assert split[0] == row
    assert split.take([0]).columns["source"] == ["a"] == split.frame()["source"][:1].tolist()


def test_the_first_row_does_not_decide_on_the_columns():
    rows = [{"text": "a"}, {"text": "b", "label": "yes"}, {"text": "c", "label": "no"}]
    with pytest.warns(UserWarning, match=r"1 of 3 \(row 0\); they were dropped"):
        assert make_split(CUSTOM, rows).labels.tolist() == [1, 0]


# ---- splits ----


def test_limit_and_seed():
    one, again, other = (load_task("sst", limit=20, seed=seed) for seed in (1, 1, 2))
    whole = load_task("sst")
    assert [len(split) for split in (one.train, one.dev, one.test)] == [20, 20, 20]
    assert one.train.ids == again.train.ids != other.train.ids
    places = [whole.train.ids.index(i) for i in one.train.ids]
    assert places == sorted(set(places))  # rows keep their order, without duplicates
    assert [whole.train[place] for place in places] == [one.train[i] for i in range(20)]
    assert len(load_task("sst", limit=10**6).train) == len(whole.train)


def test_limit_draws_among_the_rows_with_a_label(folder):
    """The same rows as a draw from the whole split; columns and ids stay with their rows."""
    lines = ["sentence,label,id,group", *(f"text {i},{i % 3 - 1},r{i},g{i}" for i in range(30))]
    place, options = folder({"{}.csv": "\n".join(lines)}), dict(labels=("negative", "positive"))
    with pytest.warns(UserWarning, match="rows without a label: 10 of 30"):
        whole = load_task("sst2", place, **options).train
        found = load_task("sst2", place, limit=6, seed=4, **options).train
    drawn = np.sort(np.random.default_rng(4).permutation(20)[:6])
    assert found.ids == [whole.ids[i] for i in drawn]
    assert found.columns["group"] == ["g" + one[1:] for one in found.ids]
    assert [found[i] for i in range(6)] == [whole[i] for i in drawn]


def test_rows_without_a_text_are_dropped_where_nobody_needs_a_prediction():
    """GLUE's QQP has two such rows. Those of a test split without labels stop."""
    labels = ("no", "yes", "yes", "yes")
    rows = [{"text": text, "label": one} for text, one in zip(("a", " ", None, "c"), labels)]
    with pytest.warns(UserWarning, match=r"rows without a text: 2 of 4 \(row 1, 2\)"):
        assert make_split(CUSTOM, rows, name="train").texts == [("a",), ("c",)]
    with pytest.raises(ValueError, match=r"rows without a text: 1 of 2 \(row 1\). Fill them in"):
        make_split(CUSTOM, [{"text": "a"}, {"text": ""}], name="test")


def test_split_indexing_and_frame():
    rows = [
        {"sentence1": f"a{i}", "sentence2": f"b{i}", "label": label, "idx": 10 * i}
        for i, label in enumerate(("not_entailment", "entailment", "not_entailment"))
    ]
    split = make_split("rte", rows, name="dev")
    last = {"sentence1": "a2", "sentence2": "b2", "label": "not_entailment", "id": 20}
    assert len(split) == 3 and split[-1] == last
    assert split.frame().to_dict("list") == {
        "sentence1": ["a0", "a1", "a2"],
        "sentence2": ["b0", "b1", "b2"],
        "label": ["not_entailment", "entailment", "not_entailment"],
        "id": [0, 10, 20],
    }
    part = split.take([2, 1])
    assert part.texts == [("a2", "b2"), ("a1", "b1")] and part.labels.tolist() == [1, 0]
    assert part.ids == [20, 10] and part.name == "dev"
    assert [row["id"] for row in split] == [0, 10, 20]  # iteration stops after the last row


def test_a_mask_selects_rows():
    split = split_of(CUSTOM, ("a", "no"), ("b", "yes"), ("c", "yes"), name="train")
    for mask in ([True, False, True], np.array([True, False, True])):
        found = split.take(mask)
        assert found.texts == [("a",), ("c",)] and found.labels.tolist() == [0, 1]
    assert split.take(split.frame()["label"] == "yes").texts == [("b",), ("c",)]
    for wrong in ([True, False], [0.9], ["2"]):
        with pytest.raises(IndexError):
            split.take(wrong)
    assert len(split.take([])) == 0 and split.take(np.array([2])).texts == [("c",)]


# ---- data of one's own ----


@pytest.mark.parametrize("dev", ["dev", "validation"])
def test_a_custom_task(folder, dev):
    text = 'text,label,id\n"a, b",Yes,7\nc,no,8\n'
    place = folder({"train.csv": text, f"{dev}.csv": text, "test.csv": text})
    data = load_task(CUSTOM, place)
    assert data.task is CUSTOM and data.train.texts == data.test.texts == [("a, b",), ("c",)]
    assert data.dev.labels.tolist() == [1, 0] and data.dev.ids == ["7", "8"]


def test_data_in_memory():
    """A DataFrame, a list of dicts and a data set of the hub are the same data."""
    from datasets import ClassLabel, Dataset

    frame = pd.DataFrame({"text": ["a", "b"], "label": ["no", "yes"]})
    rows = Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]})
    rows = rows.cast_column("label", ClassLabel(names=["yes", "no"]))
    for table in (frame, frame.to_dict("records"), rows):
        data = task_data(CUSTOM, train=table, dev=table, test=[{"text": "c"}])
        assert data.train.texts == data.dev.texts == [("a",), ("b",)]
        assert data.train.labels.tolist() == [0, 1] and data.train.ids == [0, 1]
        assert data.test.texts == [("c",)] and data.test.labels is None
    with pytest.raises(ValueError, match="train, row 8, column 'label': found 'maybe'"):
        task_data(CUSTOM, train=frame.assign(label=["no", "maybe"]).set_index([[3, 8]]), dev=frame)


@pytest.mark.parametrize("names", [["yes", "no"], None])
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
        hub=("me/mine", "small"),
        aliases={"label": ("verdict",)},
        hub_splits={"train": "train", "dev": "test"},
    )
    data = load_task(task, source="hub")
    assert requests == [("me/mine", "small")] and data.train.texts == [("a",), ("b",)]
    assert data.dev.labels.tolist() == ([1, 0] if names else [0, 1])
