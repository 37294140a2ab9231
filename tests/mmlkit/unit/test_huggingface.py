"""The multiverse head on other encoders with the Trainer: training, pruning, saving, resuming."""

import copy
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mmlkit.heads.multiverse import multiverse_loss
from mmlkit.heads.pruning import HeadPruner


def tiny(kind, **changes):
    """Return a small encoder of this kind with random weights."""
    from transformers import AutoConfig, AutoModel

    sizes = {
        "gpt2": dict(vocab_size=40, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1),
        "mamba": dict(vocab_size=40, hidden_size=16, state_size=4, num_hidden_layers=1),
        "distilbert": dict(
            vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=32
        ),
        "modernbert": dict(
            vocab_size=40,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            max_position_embeddings=32,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
        ),
        "bert": dict(
            vocab_size=40,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
        ),
    }
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(kind, **{**sizes[kind], **changes}))


def rows(count, labels=2, seed=0):
    """Return rows whose first real token determines the label."""
    generator = np.random.default_rng(seed)
    examples = []
    for i in range(count):
        label, length = i % max(labels, 2), generator.integers(3, 8)
        ids = [1, 10 + label, *generator.integers(20, 40, length).tolist()] + [0] * (7 - length)
        examples.append(
            {
                "input_ids": ids,
                "attention_mask": [int(j < length + 2) for j in range(9)],
                "labels": label if labels > 1 else float(label),
            }
        )
    return examples


def put_heads_on(encoder, num_labels=2, **head):
    """Return the encoder with multiverse heads; the import takes seconds."""
    from mmlkit.huggingface import MultiverseForSequenceClassification

    return MultiverseForSequenceClassification.on(encoder, num_labels, **head)


def callback_of(pruner):
    from mmlkit.huggingface import PruningCallback

    return PruningCallback(pruner)


def wrap(kind, num_labels=2, **head):
    torch.manual_seed(1)
    return put_heads_on(tiny(kind), num_labels, **{"num_heads": 12, **head})


def train(model, folder, pruner=None, resume=None, **settings):
    from transformers import Trainer, TrainingArguments

    settings = {
        "max_steps": 12,
        "per_device_train_batch_size": 8,
        "learning_rate": 3e-3,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "use_cpu": True,
        **settings,
    }
    trainer = Trainer(
        model,
        TrainingArguments(str(folder), **settings),
        train_dataset=rows(48, model.head.num_labels),
        callbacks=[callback_of(pruner)] if pruner else None,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def tensors(count=4, labels=2):
    examples = rows(count, labels, seed=5)
    return {key: torch.tensor([row[key] for row in examples]) for key in examples[0]}


@pytest.mark.parametrize("kind", ["distilbert", "modernbert", "bert"])
def test_wrapping_changes_no_weight_and_the_loss_follows_the_equations(kind):
    model, plain, batch = wrap(kind, dropout=0.0, orthogonality_weight=0.1), tiny(kind), tensors()
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.encoder.state_dict().values(), plain.state_dict().values())
    )
    with torch.no_grad():
        model.eval(), plain.eval()
        x = plain(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).last_hidden_state[:, 0]
        each = torch.einsum("bd,mcd->mbc", x, model.head.weight) + model.head.bias[:, None]
        data = sum(F.cross_entropy(logits, batch["labels"]) for logits in each)
        evaluated = model(**batch)
        torch.testing.assert_close(evaluated.logits, each.mean(0))
        torch.testing.assert_close(
            evaluated.loss, F.cross_entropy(evaluated.logits, batch["labels"])
        )
        model.head.train(), setattr(model, "training", True)  # the encoder stays without dropout
        torch.testing.assert_close(
            model(**batch).loss, data + 0.1 * multiverse_loss(model.head.weight)
        )


@pytest.mark.slow
def test_train_prune_save_reload(tmp_path, kind="modernbert"):
    model = wrap(kind)
    pruner = HeadPruner(model.head, every=4, bandwidth="std:0.3")
    train(model, tmp_path, pruner, max_steps=60, learning_rate=1e-2)
    assert any(event.dropped for event in pruner.events) and not model.head.active.all()
    dropped = {head for event in pruner.events for head in event.dropped}
    assert dropped == set((~model.head.active).nonzero().flatten().tolist())
    assert pruner.events[0].step == 4
    model.eval().save_pretrained(tmp_path / "model")
    again = type(model).from_pretrained(tmp_path / "model").eval()
    batch = tensors()
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, model(**batch).logits) and torch.equal(
            again.head.active, model.head.active
        )
        assert (
            model(**tensors(40)).logits.argmax(-1) == tensors(40)["labels"]
        ).float().mean() > 0.9
        collapsed = model.head.collapse()
        x = model.encoder(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).last_hidden_state[:, 0]
        torch.testing.assert_close(collapsed(x), model(**batch).logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}]
)
def test_a_step_of_the_trainer_counts_the_penalty_once(options, tmp_path):
    """The heads move by lr times the gradient of the mean data loss plus lambda times the penalty.

    This holds for SGD without clipping and without dropout.
    """
    model = wrap("distilbert", dropout=0.0, orthogonality_weight=0.5)
    model.encoder.config.dropout = model.encoder.config.attention_dropout = 0.0
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    train(
        model,
        tmp_path,
        max_steps=1,
        optim="sgd",
        learning_rate=0.01,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        seed=3,
        train_sampling_strategy="sequential",
        **options,
    )
    moved = (before["head.weight"] - model.head.weight.detach()) / 0.01
    fresh = wrap("distilbert", dropout=0.0, orthogonality_weight=0.5).eval()
    fresh.training = True  # the loss of training, without the encoder's dropout
    examples = rows(48)[:8]
    fresh(
        **{key: torch.tensor([row[key] for row in examples]) for key in examples[0]}
    ).loss.backward()
    torch.testing.assert_close(moved, fresh.head.weight.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_resumed_trainer_restores_the_pruner_from_any_folder(tmp_path):
    """The Trainer can resume from any folder, so the checkpoint contains the pruner's state."""
    settings = dict(max_steps=12, save_strategy="steps", save_steps=6)
    whole = wrap("distilbert")
    first = HeadPruner(whole.head, every=4, bandwidth="std:0.3")
    train(whole, tmp_path / "first", first, **settings)
    (tmp_path / "first" / "checkpoint-6").rename(tmp_path / "kept")
    model = wrap("distilbert")
    pruner = HeadPruner(model.head, every=4, bandwidth="std:0.3")
    train(model, tmp_path / "second", pruner, resume=str(tmp_path / "kept"), **settings)
    assert pruner.observed == 12 and pruner.events == first.events
    assert torch.equal(pruner.averages, first.averages) and torch.equal(
        model.head.active, whole.head.active
    )


@pytest.mark.slow
def test_a_checkpoint_without_a_pruner_is_refused(tmp_path):
    settings = dict(max_steps=12, save_strategy="steps", save_steps=6)
    train(wrap("distilbert"), tmp_path, **settings)
    model = wrap("distilbert")
    with pytest.raises(KeyError, match="PruningCallback"):
        train(
            model,
            tmp_path,
            HeadPruner(model.head, every=4),
            resume=str(tmp_path / "checkpoint-6"),
            **settings,
        )


def test_dropped_heads_do_not_move_in_the_trainer(tmp_path):
    model = wrap("distilbert")
    pruner = HeadPruner(model.head, every=4, bandwidth="std:0.3")
    train(
        model,
        tmp_path,
        pruner,
        max_steps=8,
        learning_rate=1e-2,
        weight_decay=0.3,
        lr_scheduler_type="constant",
        save_strategy="steps",
        save_steps=4,
    )
    first, last = pruner.events[0].dropped, (~model.head.active).nonzero().flatten().tolist()
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "checkpoint-4" / "model.safetensors")
    assert first and set(first) <= set(last)
    assert torch.equal(model.head.weight[first], saved["head.weight"][first]) and torch.equal(
        model.head.bias[first], saved["head.bias"][first]
    )
    left = model.head.active.nonzero().flatten()
    assert not torch.equal(model.head.weight[left], saved["head.weight"][left])


def test_a_regression_sums_the_squared_errors_of_the_heads():
    model = wrap("distilbert", num_labels=1, dropout=0.0, orthogonality_weight=0.0).eval()
    batch = tensors(4, labels=1)
    with torch.no_grad():
        out = model(**batch)
        x = model.encoder(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).last_hidden_state[:, 0]
        each = (
            torch.einsum("bd,md->mb", x, model.head.weight[:, 0])
            + model.head.bias
            - batch["labels"]
        ) ** 2
        model.training = True  # the loss of training is that of all heads
        trained = model(**batch).loss
    assert out.logits.shape == (4, 1)
    torch.testing.assert_close(trained, each.mean(1).sum())
    torch.testing.assert_close(out.loss, F.mse_loss(out.logits[:, 0], batch["labels"]))


def test_scores_may_come_as_a_column():
    """transformers' own models accept [B, 1]; each row would be compared with all scores."""
    model, batch = wrap("distilbert", num_labels=1, dropout=0.0).eval(), tensors(4, labels=1)
    model.training = True
    expected = model(**batch).loss
    column = model(**{**batch, "labels": batch["labels"][:, None]})
    assert torch.equal(column.loss, expected) and model.per_head.dim() == 1


def test_the_head_reads_an_encoder_in_half_precision():
    encoder = tiny("distilbert").to(torch.bfloat16)
    model = put_heads_on(encoder, np.int64(2), pooling="cls", num_heads=4)
    out = model(**tensors(4))
    assert out.logits.dtype == torch.float32 and torch.isfinite(out.loss)
    assert type(model.config.num_labels) is int
    json.dumps(model.config.to_dict())


def test_the_pruner_of_another_models_head_is_refused(tmp_path):
    """It would be pruned in place of the trained one."""
    other = wrap("distilbert")
    with pytest.raises(ValueError, match="the pruner's head is none of those that"):
        train(wrap("distilbert"), tmp_path, HeadPruner(other.head, every=4), max_steps=2)


def test_a_copy_of_the_head_that_a_wrapper_trains_is_named(tmp_path):
    """PEFT's modules_to_save trains a copy and freezes the original, which stays in the model."""
    model = wrap("distilbert")
    model.copy = copy.deepcopy(model.head)
    model.head.requires_grad_(False)
    with pytest.raises(ValueError, match=r"model.get_submodule\(name\), .*one of \['copy'\]"):
        train(model, tmp_path, HeadPruner(model.head), max_steps=1)
    wrapper = torch.nn.Sequential(model)
    callback = callback_of(HeadPruner(wrapper.get_submodule("0.copy")))
    state = SimpleNamespace(global_step=0)
    callback.on_train_begin(SimpleNamespace(world_size=1, n_gpu=0), state, None, wrapper)
    assert callback.model is model, "the losses are read from another module"


def test_weights_in_half_precision_are_not_trained(tmp_path):
    model = wrap("distilbert").bfloat16()
    with pytest.raises(ValueError, match=r"torch.bfloat16 round .* Train model.float\(\)"):
        train(model, tmp_path, HeadPruner(model.head), max_steps=1)


def test_an_encoder_by_name_is_loaded_in_fp32(tmp_path):
    tiny("distilbert").bfloat16().save_pretrained(tmp_path)
    model = put_heads_on(tmp_path, 2, num_heads=3)
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        model = put_heads_on(tmp_path, 2, num_heads=3)
    finally:
        torch.set_default_dtype(before)
    assert {one.dtype for one in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", ["gpt2", "mamba"])
def test_a_causal_model_is_not_pooled_at_its_first_token(kind):
    causal = tiny(kind)
    with pytest.raises(ValueError, match="pooling='cls' reads the first token, .*'mean'"):
        put_heads_on(causal, 2)
    model = put_heads_on(causal, 2, num_heads=3, pooling="mean").eval()
    one, other = (model(torch.tensor([[5, 6, last]])).logits for last in (7, 8))
    assert not torch.equal(one, other)


def test_a_label_that_the_head_lacks_is_named():
    with pytest.raises(ValueError, match="label 2 came, expected 0 to 1, or below 0"):
        wrap("distilbert")(**{**tensors(2), "labels": torch.tensor([1, 2])})


@pytest.mark.parametrize("labels", [[0.0, 1.0], [[0.0, 1.0], [1.0, 1.0]], [[0, 1], [1, 1]]])
def test_labels_of_another_form_are_refused(labels):
    with pytest.raises(ValueError, match="Several labels of a row are not supported"):
        wrap("distilbert")(**{**tensors(2), "labels": torch.tensor(labels)})


def test_several_devices_are_refused(tmp_path):
    with pytest.raises(ValueError, match="runs on 2; set CUDA_VISIBLE_DEVICES"):
        callback_of(None).on_train_begin(SimpleNamespace(world_size=2, n_gpu=1), None, None)


def tiny_t5(kind):
    import transformers

    torch.manual_seed(0)
    sizes = dict(vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    return getattr(transformers, kind)(transformers.T5Config(**sizes)).eval()


@pytest.mark.parametrize("form", ["encoder", "folder"])
def test_the_encoder_of_t5_comes_back(tmp_path, form):
    ids, whole = torch.tensor([[3, 4, 5]]), tiny_t5("T5Model")
    whole.save_pretrained(tmp_path / "t5")
    encoder = type(tiny_t5("T5EncoderModel")).from_pretrained(tmp_path / "t5")
    model = put_heads_on(
        encoder if form == "encoder" else tmp_path / "t5", num_heads=3, pooling="mean"
    ).eval()
    assert torch.equal(
        model.encoder(ids).last_hidden_state, whole.get_encoder()(ids).last_hidden_state
    )
    model.save_pretrained(tmp_path / "out")
    again = type(model).from_pretrained(tmp_path / "out")
    assert torch.equal(again(input_ids=ids).logits, model(input_ids=ids).logits)


def bart():
    from transformers import AutoConfig, AutoModel

    sizes = dict(d_model=16, encoder_layers=1, decoder_layers=1, vocab_size=40)
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2)
    return AutoModel.from_config(AutoConfig.for_model("bart", **sizes, **heads))


def classifier():
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_config(tiny("bert").config)


@pytest.mark.parametrize(
    "make", [lambda: tiny_t5("T5Model"), bart, lambda: bart().get_encoder(), classifier]
)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_an_encoder_that_would_not_come_back_is_refused(make, pooling):
    with pytest.raises(ValueError, match="is not the encoder that AutoModel.* makes. Pass a T5Enc"):
        put_heads_on(make(), num_heads=3, pooling=pooling)


def test_the_base_model_of_a_classifier_is_an_encoder():
    assert put_heads_on(classifier().base_model, num_heads=3).head.num_heads == 3


def test_a_folder_with_heads_and_one_without_name_each_other(tmp_path):
    model = wrap("distilbert", num_heads=3)
    model.save_pretrained(tmp_path / "heads"), model.encoder.save_pretrained(tmp_path / "plain")
    opened = type(model)
    with pytest.raises(ValueError, match=r"has multiverse heads already: .*from_pretrained\("):
        opened.on(tmp_path / "heads")
    with pytest.raises(ValueError, match=r"without heads of mmlkit: open it with .*\.on\("):
        opened.from_pretrained(tmp_path / "plain")
    assert opened.on(tmp_path / "plain", num_labels=2, num_heads=3).head.num_heads == 3
    assert opened.from_pretrained(tmp_path / "heads").head.num_heads == 3


def test_an_encoder_of_one_segment_reads_pairs():
    model = put_heads_on(tiny("bert", type_vocab_size=1), num_heads=3).eval()
    ids = torch.tensor([[1, 2, 3]])
    one, two = model(ids).logits, model(ids, token_type_ids=torch.tensor([[0, 1, 1]])).logits
    assert torch.equal(one, two)


def test_a_pruner_whose_head_does_not_train(tmp_path):
    """With LoRA alone no head is trained, and a Trainer with model_init trains another model."""
    from transformers import Trainer, TrainingArguments

    model = wrap("distilbert")
    model.head.requires_grad_(False)
    with pytest.raises(ValueError, match=r"LoraConfig\(modules_to_save=\['head'\], \.\.\.\)"):
        train(model, tmp_path, HeadPruner(model.head), max_steps=1)
    arguments = TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, report_to=[])
    trainer = Trainer(args=arguments, model_init=lambda: wrap("distilbert"), train_dataset=rows(8))
    trainer.add_callback(callback_of(HeadPruner(trainer.model.head)))
    with pytest.raises(ValueError, match="give the Trainer model=model: model_init makes"):
        trainer.train()


def test_a_loss_of_ones_own_beside_the_pruner_is_refused(tmp_path):
    from transformers import Trainer, TrainingArguments

    model = wrap("distilbert")
    arguments = TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, report_to=[])
    own = lambda outputs, labels, **more: F.cross_entropy(outputs["logits"], labels)
    trainer = Trainer(model, arguments, train_dataset=rows(8), compute_loss_func=own)
    trainer.add_callback(callback_of(HeadPruner(model.head)))
    with pytest.raises(ValueError, match="Leave out .* compute_loss_func"):
        trainer.train()


def test_a_trainer_that_keeps_the_labels_from_the_model_is_refused(tmp_path):
    model = wrap("distilbert")
    train(model, tmp_path, max_steps=1)  # its last losses are not those of the next training
    with pytest.raises(ValueError, match="got no labels.* Leave out label_smoothing_factor and"):
        train(model, tmp_path, HeadPruner(model.head), label_smoothing_factor=0.1, max_steps=1)


@pytest.mark.slow
def test_the_example_of_the_guide(tmp_path, monkeypatch, capsys, tokenizer):
    """Run the example with a tiny local encoder and 100 steps."""
    root = Path(__file__).resolve().parents[3]
    page = (root / "docs/guide/own-encoder.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(from transformers import .*?)```", page, re.S)[1]
    assert len(code.strip().splitlines()) <= 15 and code.count('"distilbert-base-uncased"') == 1
    encoder = tiny("distilbert", vocab_size=len(tokenizer), max_position_embeddings=128)
    encoder.save_pretrained(tmp_path / "encoder"), tokenizer.save_pretrained(tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    code = code.replace('"distilbert-base-uncased"', '"encoder"').replace(
        'TrainingArguments("runs/mrpc")',
        'TrainingArguments("runs/mrpc", max_steps=100, use_cpu=True, disable_tqdm=True, '
        'report_to=[], save_strategy="no")',
    )
    found = {}
    exec(compile(code, "own-encoder.md", "exec"), found)
    assert (
        "heads remain; Linear(in_features=16, out_features=2, bias=True) gives the same logits"
        in capsys.readouterr().out
    )
    assert found["pruner"].events[0].step == 50 and found["model"].head.num_heads == 16
    again = type(found["model"]).from_pretrained("runs/mrpc/model")
    assert torch.equal(again.head.weight, found["model"].head.weight) and torch.equal(
        again.head.active, found["model"].head.active
    )


def test_a_resized_encoder_is_saved_with_its_size(tmp_path):
    model = put_heads_on(tiny("bert"), 2, num_heads=3)
    model.resize_token_embeddings(47)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.encoder.get_input_embeddings().weight.shape == (47, 16)


def test_the_outputs_that_users_of_transformers_ask_for():
    model = put_heads_on(tiny("bert"), 2, num_heads=3).eval()
    ids = torch.tensor([[1, 7, 9, 2]])
    found = model(ids, labels=torch.tensor([1]), output_hidden_states=True)
    assert len(found.hidden_states) == 3 and found.hidden_states[2].shape == (1, 4, 16)
    loss, logits = model(ids, labels=torch.tensor([1]), return_dict=False)
    assert torch.equal(loss, found.loss) and torch.equal(logits, found.logits)
    assert torch.equal(model(ids, return_dict=False)[0], found.logits)
    model.gradient_checkpointing_enable()
    model.train()(ids, labels=torch.tensor([1])).loss.backward()
    assert model.encoder.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_the_loss_of_an_evaluation_does_not_shrink_with_the_heads():
    """The Trainer chooses the best checkpoint by it; a sum over heads would prefer few heads."""
    model, batch = wrap("bert").eval(), tensors()
    with torch.no_grad():
        model.head.weight[1:] = model.head.weight[0]  # equal heads have one answer
    whole = model(**batch)
    model.head.set_active(torch.arange(12) < 3)
    pruned = model(**batch)
    torch.testing.assert_close(pruned.logits, whole.logits)
    torch.testing.assert_close(pruned.loss, whole.loss)


@pytest.mark.parametrize("unknown", [-100, -1])
def test_rows_without_a_label_do_not_count_in_the_loss(unknown):
    """-100 is transformers' label of such rows, -1 the hub's; the mean is over the others."""
    model, batch = wrap("bert", dropout=0.0, orthogonality_weight=0.0), tensors()
    model.head.train(), setattr(model, "training", True)
    model.encoder.eval()
    expected = model(**{key: value[:3] for key, value in batch.items()}).loss
    batch["labels"][3] = unknown
    torch.testing.assert_close(model(**batch).loss, expected)


def test_a_regression_keeps_its_scores_in_a_pipeline(tmp_path, tiny_tokenizer):
    """transformers' own classes name the problem type; otherwise pipeline applies a sigmoid."""
    from transformers import pipeline

    sizes = dict(vocab_size=199, max_position_embeddings=32)
    model = put_heads_on(tiny("bert", **sizes), 1, num_heads=3).eval()
    with torch.no_grad():
        model.head.bias += 3.0
    model.save_pretrained(tmp_path), tiny_tokenizer.save_pretrained(tmp_path)
    coded = tiny_tokenizer("a great film", return_tensors="pt")
    (found,) = pipeline("text-classification", str(tmp_path))("a great film")
    assert found["score"] == pytest.approx(model(**coded).logits.item(), abs=1e-5)
    assert found["score"] > 1.5


def test_loading_keeps_what_the_user_asks_for(tmp_path):
    from transformers import AutoModelForSequenceClassification

    model = wrap("bert").eval()
    assert model.num_labels == 2
    model.save_pretrained(tmp_path)
    load = AutoModelForSequenceClassification.from_pretrained
    eager = load(tmp_path, attn_implementation="eager")
    found = eager(**tensors(), output_attentions=True)
    assert len(found.attentions) == 2 and found.attentions[0].shape == (4, 2, 9, 9)
    torch.testing.assert_close(found.logits, model(**tensors()).logits)
    with pytest.raises(RuntimeError, match="head.weight|mismatched"):
        load(tmp_path, num_labels=3)


def test_fresh_heads_have_the_mode_of_their_encoder():
    for mode in (True, False):
        model = put_heads_on(tiny("bert").train(mode), 2, num_heads=3)
        assert {module.training for module in model.modules()} == {mode}
