"""Inputs of public bug reports: the right value, or one sentence that names the cause."""

import copy
import csv
import dataclasses
import functools
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import write_tiny_bert, write_vocabulary

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.bert.pretrained import load_pretrained, read_checkpoint
from mmlkit.data.batching import collate, encode
from mmlkit.data.files import read_rows
from mmlkit.data.loading import load_task, make_split, task_data
from mmlkit.data.tasks import Task
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.training.evaluation import evaluate, predict, predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.saving import load_model, save_model
from mmlkit.training.step import train_step

YES_NO = Task("mine", text_columns=("text",), labels=("no", "yes"))
THREE = Task("mine", text_columns=("text",), labels=("negative", "neutral", "positive"))


def load(folder, text, task=YES_NO, name="{}.csv", **options):
    """Write train and dev with the same text, and load them."""
    for split in ("train", "dev"):
        (folder / name.format(split)).write_text(text, encoding="utf-8", newline="")
    return load_task(task, folder, **options)


def labelled(split):
    return [(*texts, split[i]["label"]) for i, texts in enumerate(split.texts)]


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    return write_tiny_bert(tmp_path_factory.mktemp("bert") / "tiny")


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return Path(shutil.copytree(tiny_folder, tmp_path / "bert"))


def configure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def linear(folder, task=YES_NO, **options):
    encoder, _ = load_pretrained(folder, device="cpu")
    return MultitaskModel(encoder, {task.name: LinearHead(32, task.num_labels, **options)})


def encoded_batch(folder, texts=("the cat", "a dog"), labels=("no", "yes")):
    split = make_split(YES_NO, {"text": list(texts), "label": list(labels)}, name="train")
    return collate(encode(load_pretrained(folder)[1], split), range(len(texts)))


# data


def test_integers_from_minus_one_follow_the_advice_of_the_message(tmp_path):
    text, names = "text,label\nawful,-1\na table,0\nlovely,1\n", THREE.labels
    with pytest.raises(ValueError, match="a dict from its labels to names"):
        load(tmp_path, text, THREE, labels=names)
    data = load(tmp_path, text, THREE, labels=dict(zip((-1, 0, 1), names)))
    assert labelled(data.train) == list(zip(("awful", "a table", "lovely"), names))


def numbered(*numbers, labels=("*", "**", "***"), **options):
    task = Task("stars", text_columns=("text",), labels=("*", "**", "***"))
    rows = {"text": [f"text {i}" for i in numbers], "label": numbers}
    return make_split(task, rows, name="train", labels=labels, **options)


def test_integers_from_one_without_the_highest_are_noticed():
    """Read as the order from 0 on, every label would be one too high."""
    with pytest.warns(UserWarning, match="no row has 0, .* begin at 1, pass") as found:
        numbered(1, 2, 1)
    advised = eval(
        f"dict({found[0].message.args[0].split('pass ')[1][:-1]})".replace("...", "3:'***'")
    )
    assert numbered(1, 2, 1, **advised).labels.tolist() == [0, 1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numbered(0, 2, 1).labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize("value", [-1, -1.0, "-1"])
def test_minus_one_is_unknown_only_beside_all_other_labels(value):
    for numbers in ((value, 1), (value, 0, 1), (value, 1, 2)):
        with pytest.raises(ValueError, match=rf"in the table, .*'{value}'.*a dict .*-1: 'no', 1: "):
            numbered(*numbers)
    assert numbered(value, 1, 1, labels={-1: "*", 1: "***"}).labels.tolist() == [0, 2, 2]
    with pytest.warns(UserWarning, match=r"without a label: 1 of 4 \(row 1\)"):
        assert numbered(0, value, 1, 2).labels.tolist() == [0, 1, 2]
    rows = {"text": ["a", "b"], "label": [value, value]}
    assert make_split(YES_NO, rows, name="test", labels=("no", "yes")).labels is None


def test_numbers_are_texts(folder):
    """A csv file gives them as texts, too."""
    rows = {"text": ["a", 911, 1.5, np.int64(7), True, "007"], "label": ["no", "yes"] * 3}
    texts = [("a",), ("911",), ("1.5",), ("7",), ("True",), ("007",)]
    assert make_split(YES_NO, rows, name="train").texts == texts
    model = linear(folder)
    expected = predict_scores(model, ["the cat", "911"], task=YES_NO)
    found = predict_scores(model, ["the cat", 911], task=YES_NO)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_a_tsv_file_that_pandas_wrote_has_the_texts_of_its_frame(tmp_path, quoting, end):
    texts = ['He said ""no"".', 'a "good" film', "two\tcolumns", "two\nlines", "plain"]
    frame = pd.DataFrame({"text": texts, "label": ["yes", "no", "yes", "no", "yes"], "n": 1})
    text = frame.to_csv(sep="\t", index=False, quoting=quoting, lineterminator=end)
    frame = frame.drop(columns="n")
    assert labelled(load(tmp_path, text, name="{}.tsv").train) == list(map(tuple, frame.values))


@pytest.mark.parametrize(
    "row",
    ['"A triumph"', 'He said "no"', '"He said ""no"', '"', '""', '"A" and "B"', '5" disk', '"a" b'],
)
def test_marks_in_the_tsv_files_of_glue_are_text(tmp_path, row):
    """Quotation marks are part of the text there, also where they look like csv's in a row."""
    data = load(tmp_path, f'text\tlabel\n{row}\tno\nsay "x"\tyes\n', name="{}.tsv")
    assert labelled(data.train)[0] == (row, "no")


def test_scores_on_another_scale_are_noticed(tmp_path):
    text = "sentence1,sentence2,score\na,b,0.9\nc,d,0.1\ne,f,1\n"
    with pytest.raises(ValueError, match="highest score is 1, expected scores from 0 to 5"):
        load(tmp_path, text, "stsb_star")
    with pytest.warns(UserWarning, match="highest score is 1, .*another scale"):
        data = load(tmp_path, text, "stsb")
    assert data.train.labels.tolist() == [np.float32(0.9), np.float32(0.1), 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path, text + "g,h,3\n", "stsb")
    for task in ("stsb", "stsb_star"):
        with pytest.raises(ValueError, match="row 5, .* The highest score is 100: divide them"):
            load(tmp_path, text + "g,h,50\nk,l,100\n", task)
        found = load(tmp_path, f"sentence1,sentence2,score\na,b,{50 / 20}\nk,l,{100 / 20}\n", task)
        assert found.train.labels.tolist() == ([2.5, 5] if task == "stsb" else [1])
        (tmp_path / "test.csv").write_text("sentence1,sentence2,score\na,b,-1\nc,d,-1\n")
        assert load(tmp_path, text + "g,h,5\n", task).test.labels is None
        (tmp_path / "test.csv").unlink()


def test_a_file_in_another_encoding_or_form_has_a_way_on(tmp_path):
    for encoding in ("utf-16", "cp1252"):
        (tmp_path / "train.csv").write_text("text,label\nschön,no\n", encoding=encoding)
        with pytest.raises(ValueError, match=r"train.csv cannot be read: .* Save it as UTF-8\."):
            read_rows(tmp_path / "train.csv")
    with pytest.raises(ValueError, match=r"\(line 2\). Save"):
        read_rows(tmp_path / "train.csv")
    (tmp_path / "train.csv").write_text("text,label\nschön,no\n", encoding="utf-8")
    assert read_rows(tmp_path / "train.csv").text.tolist() == ["schön"]
    for indent in (None, 1):
        rows = json.dumps([{"text": "a", "label": "no"}], indent=indent)
        (tmp_path / "train.jsonl").write_text(rows)
        with pytest.raises(ValueError, match="line 1 is no JSON object.* Write each row as an obj"):
            read_rows(tmp_path / "train.jsonl")
    (tmp_path / "train.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    assert read_rows(tmp_path / "train.jsonl").text.tolist() == ["a", "b"]


def test_the_other_sst_of_mt_dnn_is_not_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="whose sst is 'sst2'"):
        load(tmp_path, "0\t1\tgood\n1\t0\tbad\n", "sst", "sst_{}.tsv")
    assert load_task("sst2", tmp_path).train.labels.tolist() == [1, 0]
    with pytest.raises(ValueError, match="SST-2 with two labels is the task 'sst2'"):
        load(tmp_path, "sentence\tlabel\ngood\t1\nbad\t0\n", "sst", "{}.tsv")


def test_classes_that_train_lacks_are_noticed(tmp_path):
    with pytest.warns(UserWarning, match=r"train.csv: no row is 'yes'\."):
        load(tmp_path, "text,label\na,no\nb,no\n")
    rows = [{"text": "a", "label": name} for name in (THREE.labels[0], THREE.labels[1])]
    with pytest.warns(UserWarning, match=f"train: no row is {THREE.labels[2]!r}."):
        task_data(THREE, rows, rows)


def test_a_word_for_unknown_labels(tmp_path):
    (tmp_path / "test.csv").write_text("text,label\na,hidden\nb,hidden\n")
    text = "text,label\na,no\nb,yes\n"
    with pytest.raises(ValueError, match=r"found 'hidden', .*\(None: the label is unknown\)"):
        load(tmp_path, f"{text}c,hidden\n")
    assert load(tmp_path, text, labels={"hidden": None}).test.labels is None
    with pytest.warns(UserWarning, match="test.csv: 'hidden' in all rows: unknown labels"):
        assert load(tmp_path, text).test.labels is None
    for rows in ("a,2\nb,2\n", "a,hidden\nb,secret\n", 'a,"no,yes"\n'):  # not one word
        (tmp_path / "test.csv").write_text(f"text,label\n{rows}")
        with pytest.raises(ValueError, match="test.csv, row 2, column 'label': found"):
            load(tmp_path, text)
    (tmp_path / "test.csv").unlink()
    with pytest.warns(UserWarning, match="rows without a label: 1 of 3"):
        data = load(tmp_path, f"{text}c,hidden\n", labels={"hidden": None})
    assert labelled(data.train) == [("a", "no"), ("b", "yes")]
    with pytest.raises(ValueError, match="does not fit"):
        load(tmp_path, text, labels={"no": None})


@pytest.mark.parametrize("name", ["id", "idx", "index", "test_id", "ID", "pairID"])
def test_ids_have_other_names_in_other_releases(name):
    split = make_split(YES_NO, [{"text": "a", "label": "no", name: 7}], name="train")
    assert split.ids == [7] and not split.columns


def test_empty_columns_and_rows_cost_nothing(tmp_path):
    with pytest.warns(UserWarning, match="1 of 3"):
        data = load(tmp_path, "text,label,,\na,no,,\n,,,\nb,yes,,\n")
    assert labelled(data.train) == [("a", "no"), ("b", "yes")]


def test_a_first_line_that_is_a_row_is_named(tmp_path):
    with pytest.raises(ValueError, match="add it where the first line is a row"):
        load(tmp_path, "a man,no\na dog,yes\n")
    with pytest.raises(ValueError, match="rename the column.$"):  # memory has no first line
        make_split(YES_NO, [{"text": "a dog", "answer": "yes"}], name="train")


@pytest.mark.parametrize(
    "value",
    [["no"], [0, 1], np.array([1, 0]), [], "no,yes", "yes | no", "0;1", "['no', 'yes']", "[1]"],
)
def test_several_labels_of_a_row_are_refused(value):
    with pytest.raises(ValueError, match=r"Several labels of a row \(multi-label\) are not supp"):
        make_split(YES_NO, {"text": ["a", "b"], "label": [value, "no"]}, name="train")


def test_a_column_for_each_label_is_refused():
    with pytest.raises(ValueError, match=r"Several labels of a row \(multi-label\) are not supp"):
        make_split(YES_NO, {"text": ["a", "b"], "no": [0, 1], "yes": [1, 1]}, name="train")


@pytest.mark.parametrize("value", [pd.NA, None, np.nan, pd.NaT])
@pytest.mark.parametrize("task, known", [(YES_NO, ["no", "yes"]), ("stsb", [0.5, 5])])
def test_every_mark_of_a_missing_value_is_unknown(value, task, known):
    texts = {"text": ["a", "b", "c"], "sentence1": ["a", "b", "c"], "sentence2": ["a", "b", "c"]}
    with pytest.warns(UserWarning, match="rows without a label: 1 of 3"):
        split = make_split(task, {**texts, "label": [value, *known]}, name="train")
    assert split.labels.tolist() == [0, 1] if task is YES_NO else known


def test_tables_in_memory(folder):
    from datasets import Dataset

    frame = pd.DataFrame({"text": ["the cat", "a dog"], "label": ["no", "yes"]})
    model = linear(folder)
    for data in (frame, {"mine": frame}, {"train": frame, "dev": frame}):
        with pytest.raises(TypeError, match=r"data is a DataFrame; pass task_data\(task, train, d"):
            fit(model, data)
    with pytest.raises(TypeError, match=r"data is a DataFrame; pass a split, as in task_data\("):
        evaluate(model, frame)
    assert 0 <= evaluate(model, task_data(YES_NO, frame, frame).dev)["accuracy"] <= 1
    fit(model, task_data(YES_NO, frame, frame), epochs=1, device="cpu")
    expected = predict(model, frame["text"].tolist(), task="mine").tolist()
    rows, lists = frame.to_dict("records"), frame.to_dict("list")
    tables = [frame, frame[["text"]], Dataset.from_pandas(frame), rows, lists]
    tables += [frame.assign(label=one) for one in ([None, "no"], [0, 1], [-1, 7], ["x", 2])]
    for table in (*tables, pd.concat([frame, frame[["label"]]], axis=1)):
        assert predict(model, table, task="mine").tolist() == expected


@pytest.mark.parametrize("empty", ["", " ", None, np.nan])
def test_an_empty_text_to_predict_is_named(folder, empty):
    model, texts = linear(folder), ["the cat", empty]
    with pytest.raises(ValueError, match="text 1 is .* expects one text that is not empty"):
        predict(model, texts, task=YES_NO)
    with pytest.raises(ValueError, match=r"\(row 1\). Fill them in, because each row gets a pr"):
        predict(model, {"text": texts, "label": ["no", "yes"]}, task=YES_NO)


def test_data_under_another_name_are_named_without_the_whole_task(folder):
    rows = {"text": ["the cat", "a dog"], "label": ["no", "yes"]}
    data = task_data(YES_NO, rows, rows)
    with pytest.raises(ValueError, match=r"data\['spam'\] is for task 'mine'\. Use") as found:
        fit(linear(folder), {"spam": data})
    assert len(str(found.value)) < 120


# models


def test_weights_are_fp32_whatever_the_default(folder):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        model = linear(folder)
    finally:
        torch.set_default_dtype(before)
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    double = MultitaskModel(model.encoder.double(), {"mine": LinearHead(32, 2)})
    assert {one.dtype for one in double.parameters()} == {torch.float64}


@pytest.mark.parametrize("make", [LinearHead, functools.partial(MultiverseHead, num_heads=3)])
def test_a_frozen_encoder_in_half_precision(folder, make):
    frame = pd.DataFrame({"text": ["the cat", "a dog"], "label": ["no", "yes"]})
    data, model = task_data(YES_NO, frame, frame), linear(folder)
    model.heads["mine"] = make(32, 2)
    expected = predict_scores(model, frame, task=YES_NO)
    model.encoder.bfloat16()
    found = predict_scores(model, frame, task=YES_NO)
    assert found == pytest.approx(expected, abs=0.02)
    fit(model, data, epochs=1, freeze_encoder=True, device="cpu")
    assert 0 <= evaluate(model, data)["accuracy"] <= 1


def test_half_precision_weights_are_not_trained(folder):
    frame = pd.DataFrame({"text": ["the cat", "a dog"], "label": ["no", "yes"]})
    with pytest.raises(ValueError, match=r"bfloat16 round .* Train model.float\(\)"):
        fit(linear(folder).bfloat16(), task_data(YES_NO, frame, frame), device="cpu")
    model, batch = linear(folder).bfloat16().train(), encoded_batch(folder)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"bfloat16 round .* Train model.float\(\)"):
        train_step(model, batch, torch.optim.AdamW(model.parameters()))
    assert all(torch.equal(before[key], one) for key, one in model.state_dict().items())


def test_a_decoder_is_refused(folder):
    configure(folder, is_decoder=True)
    with pytest.raises(ValueError, match="is_decoder True"):
        load_pretrained(folder)


def test_a_model_of_one_segment_reads_pairs():
    encoder = BertModel(BertConfig.tiny(type_vocab_size=1)).eval()
    ids = torch.tensor([[1, 2, 3]])
    one, two = encoder(ids), encoder(ids, token_type_ids=torch.tensor([[0, 1, 1]]))
    assert torch.equal(one.last_hidden_state, two.last_hidden_state)


def test_a_tokenizer_without_cls_or_sep_is_named(folder):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"post_processor": None}))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]", "sep_token": "[SEP]"}'
    )
    with pytest.raises(ValueError, match=r"puts no \[CLS\] before a row"):
        predict(linear(folder), ["the cat"], task=YES_NO)


def test_a_vocabulary_with_capitals_keeps_them(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    path, ids = folder / "vocab.txt", []
    write_vocabulary(path)
    for change in (lambda text: text, lambda text: text.replace("\ncat\n", "\nCat\n")):
        path.write_text(change(path.read_text()))
        ids.append(load_pretrained(folder)[1]("The Cat").input_ids[1:-1])
    assert ids == [[5, 7], [1, 7]]  # [UNK] is 1: only "the" is there


PREFIXES = ["module.bert.", "module.", "bert.", "model.", "_orig_mod.", "base_model.model."]
PREFIXES += ["roberta.", "model.bert.", "encoder.", "net.bert.", "0.auto_model."]


@pytest.mark.parametrize("capitals", [True, False])
def test_a_setting_for_capitals_that_does_not_suit_the_vocabulary(folder, capitals):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    path = Path(write_vocabulary(folder / "vocab.txt"))
    words = path.read_text()
    path.write_text(words.replace("\ncat\n", "\nCat\n") if capitals else words)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": capitals}))
    has = ("has words .* removes", "has no words .* keeps")[not capitals]
    with pytest.warns(UserWarning, match=f"vocabulary {has} capitals. Set do_lower") as found:
        tokenizer = load_pretrained(folder)[1]
    assert tokenizer("the Cat").input_ids[1:-1] == [5, 1]
    tokenizer.save_pretrained(folder)  # tokenizer.json, too
    _, value = re.search(r"Set (\w+) to (\w+)", str(found[0].message)).groups()
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"do_lower_case": value == "true"})
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_pretrained(folder)[1]("the Cat").input_ids[1:-1] == [5, 7]


def test_a_vocabulary_with_accents_that_never_come_out(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    path = Path(write_vocabulary(folder / "vocab.txt"))
    path.write_text(path.read_text().replace("\ncat\n", "\nüber\n"), encoding="utf-8")
    with pytest.warns(UserWarning, match="accents, such as 'über'.* Set strip_accents to false"):
        assert load_pretrained(folder)[1]("the Über").input_ids[1:-1] == [5, 1]
    (folder / "tokenizer_config.json").write_text('{"strip_accents": false}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_pretrained(folder)[1]("the Über").input_ids[1:-1] == [5, 7]


def test_a_folder_of_another_library_is_named(folder):
    (folder / "config.json").rename(folder / "bert_config.json")
    with pytest.raises(FileNotFoundError, match="no config.json, .* found .*'bert_config.json'"):
        load_pretrained(folder)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_weights_under_a_prefix(folder, prefix):
    expected, path = load_pretrained(folder)[0].state_dict(), folder / "model.safetensors"
    save_file({prefix + key: value for key, value in load_file(path).items()}, path)
    found = load_pretrained(folder)[0].state_dict()
    assert all(torch.equal(found[key], value) for key, value in expected.items())


@pytest.mark.parametrize("name", ["model_state_dict", "state_dict"])
def test_weights_inside_the_checkpoint_of_a_training_loop(folder, name):
    expected, path = load_pretrained(folder)[0].state_dict(), folder / "model.safetensors"
    inner = {f"net.bert.{key}": value for key, value in load_file(path).items()}
    inner["net.classifier.weight"] = torch.zeros(2, 32)
    torch.save({name: inner, "epoch": 3}, folder / "pytorch_model.bin")
    path.unlink()
    config, found = read_checkpoint(folder)
    assert found.keys() == expected.keys() | {"classifier.weight"}
    assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_weights_of_two_encoders_or_none_are_named(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    twice = {f"{side}.{key}": one.clone() for key, one in weights.items() for side in "qd"}
    for tensors, text in ((twice, "There are 2, "), ({"x": torch.ones(1)}, "0, .*names are .'x'")):
        save_file(tensors, path)
        with warnings.catch_warnings(), pytest.raises(ValueError, match=text):
            warnings.simplefilter("error")  # none about a pooler
            load_pretrained(folder)


class Wrapped(torch.nn.Module):
    """A layer inside of another one, as an adapter wraps it."""

    def __init__(self, layer):
        super().__init__()
        self.base_layer, self.forward = layer, layer.forward
        self.in_features = layer.in_features


def wrap_the_encoder(model):
    layer = model.encoder.encoder.layer[0].attention.self
    layer.query = Wrapped(layer.query)


def wrap_the_head(model):
    model.heads["mine"].dense = Wrapped(model.heads["mine"].dense)


def add_words(model):  # and leave config.vocab_size as it is
    model.encoder.embeddings.word_embeddings = torch.nn.Embedding(999, 32)


@pytest.mark.parametrize("change", [wrap_the_encoder, wrap_the_head, add_words])
def test_a_model_that_nobody_could_open_is_not_saved(folder, tmp_path, change):
    model = linear(folder)
    save_model(model, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    change(model)
    with pytest.raises(ValueError, match="could not be opened again: .*(base_layer|999)"):
        save_model(model, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
    load_model(tmp_path / "out")


@pytest.mark.parametrize("whole", [False, True])
def test_adapters_of_peft_are_merged_before_a_save(folder, tmp_path, whole):
    peft, model = pytest.importorskip("peft"), linear(folder)
    frame = pd.DataFrame({"text": ["the cat", "a dog"], "label": ["no", "yes"]})
    config = peft.LoraConfig(target_modules=["query", "value"])
    if whole:
        wrapped = peft.get_peft_model(model, config)
    else:
        model.encoder = peft.get_peft_model(model.encoder, config)
    fit(model, task_data(YES_NO, frame, frame), epochs=1, lr=1e-2, device="cpu")
    expected = predict_scores(model, ["the cat"], task="mine")
    with pytest.raises(ValueError, match=r"PEFT: use what merge_and_unload\(\) returns"):
        save_model(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    if whole:
        model = wrapped.merge_and_unload()
    else:
        model.encoder = model.encoder.merge_and_unload()
    save_model(model, tmp_path / "out")
    found = predict_scores(load_model(tmp_path / "out"), ["the cat"], task="mine")
    assert found == pytest.approx(expected, abs=1e-6)


def test_other_forms_of_weights_are_named(folder):
    path = folder / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n")
    with pytest.raises(ValueError, match="pointer of Git LFS: run git lfs pull"):
        load_pretrained(folder)
    path.unlink()
    (folder / "pytorch_model.bin.index.json").write_text("{}")
    with pytest.raises(ValueError, match="bin.index.json says .* in several files. Write one"):
        load_pretrained(folder)


def test_weights_on_the_device_meta_are_named(folder):
    frame = pd.DataFrame({"text": ["the cat", "a dog"], "label": ["no", "yes"]})
    message = "parameters on the device 'meta' have no values"
    with pytest.raises(ValueError, match=message):
        predict(linear(folder).to("meta"), ["the cat"], task=YES_NO)
    with pytest.raises(ValueError, match=message):
        fit(linear(folder).to("meta"), task_data(YES_NO, frame, frame), precision="fp32")


def test_an_exported_folder_says_what_opens_it(folder, tmp_path):
    """Without mmlkit, transformers knows only that the model type is unknown to it."""
    from mmlkit.huggingface import export_classifier

    export_classifier(linear(folder, pooling="mean"), YES_NO, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["opens_after"] == "import mmlkit.huggingface"
    code = "import transformers; transformers.AutoModelForSequenceClassification.from_pretrained"
    for first, opens in (("pass", False), (config["opens_after"], True)):
        line = [sys.executable, "-c", f"{first}; {code}({str(tmp_path / 'out')!r})"]
        assert (subprocess.run(line, capture_output=True).returncode == 0) == opens


# training


@pytest.mark.parametrize("head", [LinearHead, PairHead])
def test_class_weights(head):
    """The sum of weight times cross-entropy over the rows, divided by their number, by hand."""
    torch.manual_seed(0)
    one = head(4, 2, dropout=0.0, class_weights=(1, 9)).eval()
    one = type(one)(**one.to_config())
    inputs = [torch.randn(3, 4) for _ in range(1 + (head is PairHead))]
    labels = torch.tensor([0, 1, 0])
    each = -one(*inputs).log_softmax(1)[range(3), labels]
    expected = (each[0] + 9 * each[1] + each[2]) / 3
    loss = lambda rows: (
        one.loss([x[rows] for x in inputs], SimpleNamespace(labels=labels[rows], task=YES_NO)).total
    )
    assert loss([0, 1, 2]).item() == pytest.approx(expected.item())
    parts = loss([0, 1]) * 2 / 3 + loss([2]) / 3  # as micro-batches
    assert parts.item() == pytest.approx(expected.item())
    assert "class_weights" not in one.state_dict()


def test_a_model_with_class_weights_is_trained_and_opened_again(folder, tmp_path):
    frame = pd.DataFrame({"text": ["the cat", "a dog"] * 4, "label": ["no", "yes"] * 4})
    data, found = task_data(YES_NO, frame, frame), []
    for weights in (None, (1, 1), (1, 9)):
        for size in (None, 3):
            torch.manual_seed(0)
            model = linear(folder, dropout=0.0, class_weights=weights)
            options = dict(
                freeze_encoder=True, epochs=1, batch_size=8, micro_batch_size=size, device="cpu"
            )
            found.append(fit(model, data, **options)["train_loss"][0])
    assert found[:4] == pytest.approx([found[0]] * 4, abs=1e-6)
    assert found[4] == pytest.approx(found[5], abs=1e-6) and found[4] > 3 * found[0]
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.heads["mine"].class_weights.tolist() == [1, 9]
    expected = predict(model, frame, task="mine").tolist()
    assert predict(again, frame, task="mine").tolist() == expected


def test_runs_in_threads_take_turns(folder):
    """torch's generators are global, so that runs side by side would draw each other's numbers."""
    frame = pd.DataFrame({"text": ["the cat", "a dog"] * 8, "label": ["no", "yes"] * 8})
    data, found = task_data(YES_NO, frame, frame), {}

    def train(seed, name):
        options = dict(epochs=3, batch_size=2, seed=seed, lr=1e-3, device="cpu")
        found[name] = fit(models[name], data, **options)["train_loss"].tolist()

    models = {}
    for name in ("alone 1", "alone 2", "thread 1", "thread 2"):
        torch.manual_seed(0)
        models[name] = linear(folder)
    train(1, "alone 1")
    train(2, "alone 2")
    threads = [threading.Thread(target=train, args=(i, f"thread {i}")) for i in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["thread 1"] == found["alone 1"] and found["thread 2"] == found["alone 2"]


@pytest.mark.parametrize("task_labels, refused", [((0, -100), 0), ((0, -1), 1), ((0, 2), 1)])
def test_labels_outside_of_the_task_are_named(folder, task_labels, refused):
    """A GPU would stop the process at the first such label."""
    tokenizer = load_pretrained(folder)[1]
    split = make_split(YES_NO, {"text": ["a", "the"], "label": ["no", "yes"]}, name="train")
    split = dataclasses.replace(split, labels=np.array(task_labels))
    if not refused:
        assert collate(encode(tokenizer, split), [0, 1]).labels.tolist() == list(task_labels)
        return
    with pytest.raises(
        ValueError, match="found the labels .* expected 0 to 1, or -100 where there is none"
    ):
        encode(tokenizer, split)


def test_tokens_outside_of_the_word_table_are_named(folder):
    encoder, tokenizer = load_pretrained(folder)
    size = encoder.config.vocab_size
    tokenizer.add_tokens([f"<{i}>" for i in range(size + 1 - len(tokenizer))])
    last = tokenizer.convert_ids_to_tokens(size)
    model = MultitaskModel(encoder, {"mine": LinearHead(32, 2)})
    predict(model, ["the cat"], task=YES_NO)
    with pytest.raises(ValueError, match=f"token id {size} of '{last}' is outside of the word t"):
        predict(model, ["the cat", f"a {last}"], task=YES_NO)
    frame = pd.DataFrame({"text": ["a", last], "label": ["no", "yes"]})
    with pytest.raises(ValueError, match="Take the tokenizer of this encoder"):
        fit(model, task_data(YES_NO, frame, frame), device="cpu")


@pytest.mark.parametrize(
    "wrong", [{"warmup": 500}, {"warmup": -1}, {"lr": -1e-3}, {"clip": 0}, {"clip": -1.0}]
)
def test_numbers_that_would_train_nothing_or_upwards(folder, wrong):
    frame = pd.DataFrame({"text": ["the cat", "a dog"], "label": ["no", "yes"]})
    with pytest.raises(ValueError, match="Expected a share of all steps"):
        fit(linear(folder), task_data(YES_NO, frame, frame), epochs=1, device="cpu", **wrong)


def test_the_optimizer_of_another_model_is_not_stepped(folder):
    model, other, batch = linear(folder).train(), linear(folder), encoded_batch(folder)
    with pytest.raises(ValueError, match="The optimizer has parameters of another model"):
        train_step(model, batch, torch.optim.AdamW(other.parameters()))


def test_predictions_in_threads_take_turns(folder):
    """The mode of a model belongs to all threads, also where another model has its encoder."""
    model = linear(folder, dropout=0.0).train()
    shared = MultitaskModel(model.encoder, {"mine": model.heads["mine"]}).train()
    score = lambda i: predict_scores((model, shared)[i % 2], ["the cat"] * 64, task=YES_NO)
    expected, forward = score(0), model.encoder.forward

    def slow(*inputs, **options):
        time.sleep(0.001)  # other threads go on, and may switch the mode
        return forward(*inputs, **options)

    model.encoder.forward = slow
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(score, range(40)))
    assert all((one == expected).all() for one in found) and model.encoder.training


def test_predictions_beside_a_run_of_the_same_model_change_nothing(folder):
    frame = pd.DataFrame({"text": ["the cat", "a dog"] * 8, "label": ["no", "yes"] * 8})
    data, models = task_data(YES_NO, frame, frame), []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(linear(folder))
    run = lambda model: fit(model, data, epochs=4, batch_size=2, lr=1e-3, device="cpu").train_loss
    expected = run(models[0]).tolist()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(run, models[1])
        while not found.done():
            predict(models[1], ["the cat"], task=YES_NO, device="cpu")
    assert found.result().tolist() == expected


@pytest.mark.parametrize("metric", ["pearson", "spearman", "f1", "matthews"])
@pytest.mark.parametrize("rows", [1, 2])
def test_where_no_metric_is_defined_the_last_epoch_stays(folder, metric, rows):
    options = {} if metric in ("f1", "matthews") else {"kind": "regression", "labels": ()}
    task = dataclasses.replace(YES_NO, metrics=(metric,), **options)
    labels = YES_NO.labels if task.labels else [1.0, 2.0]
    train = pd.DataFrame({"text": ["the cat", "a dog"], "label": labels})
    data = task_data(task, train, train.assign(label=labels[0])[:rows])
    with pytest.warns(UserWarning, match="No dev metric is defined") as told:
        history = fit(linear(folder, task), data, epochs=3, device="cpu")
    assert sum("No dev metric" in str(one.message) for one in told) == 1
    assert history["best"].tolist() == [False, False, True] and history[metric].isna().all()


def test_f1_of_three_labels_is_refused_before_training(folder):
    rows = {"text": ["the", "cat", "dog"], "label": THREE.labels}
    task = dataclasses.replace(THREE, metrics=("f1",))
    with pytest.raises(ValueError, match=r"metrics .'f1'.; .*'macro_f1', .* with 3 labels"):
        fit(linear(folder, task), task_data(task, rows, rows))
