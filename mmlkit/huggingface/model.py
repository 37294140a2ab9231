"""The multiverse head on any AutoModel."""

from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from mmlkit.heads.linear import data_loss, sentence_vector
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.huggingface.config import MultiverseConfig, label_names

__all__ = ["MultiverseForSequenceClassification"]


class MultiverseForSequenceClassification(PreTrainedModel):
    """An encoder of any kind with a MultiverseHead (MML v2, Eqs. 2 to 5).

    Make one with `on`. `save_pretrained` and `from_pretrained` keep the weights and the mask of
    active heads, and after `import mmlkit.huggingface` transformers'
    AutoModelForSequenceClassification opens the folder too. num_labels=1 is a regression. In
    training, the loss is the sum of the heads' losses and the orthogonality term; in evaluation it
    is that of the logits, which the number of active heads does not change. With
    label_smoothing_factor or compute_loss_func the Trainer computes a loss of its own, without the
    heads' losses and that term.

    Args:
        config: a MultiverseConfig.
        encoder: the loaded encoder; by default one of the configuration, without weights.

    Raises:
        ValueError: the configuration and its head have different numbers of labels.
    """

    config_class = MultiverseConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    # The Trainer then divides by its accumulation steps, so that the penalty counts once.
    accepts_loss_kwargs = False

    def __init__(self, config, encoder=None):
        if config.num_labels != config.head["num_labels"]:
            raise ValueError(
                f"num_labels is {config.num_labels}, but the head has {config.head['num_labels']} "
                "labels. For other labels make a model with on(...)."
            )
        if config.num_labels == 1 and config.problem_type is None:
            config.problem_type = "regression"  # `pipeline` then applies no sigmoid
        attention = config._attn_implementation  # None where the user has not named one
        super().__init__(config)
        if encoder is None:
            encoder = AutoModel.from_config(
                AutoConfig.for_model(**config.encoder),
                attn_implementation=attention,
                trust_remote_code=False,
            )
        self.encoder, self.num_labels = encoder, config.num_labels
        self.head = MultiverseHead(**config.head)
        self.per_head = None  # [A], detached: losses of the last batch, for the pruner
        self.post_init()

    @classmethod
    def on(cls, encoder, num_labels=None, *, num_heads=None, pooling="cls", id2label=None, **head):
        """Put fresh heads on an encoder.

        Args:
            encoder: a loaded AutoModel, or a name or folder for AutoModel.from_pretrained.
            num_labels: C; the length of id2label by default.
            num_heads: M; the encoder's hidden_size by default, as in the paper.
            pooling: "cls", "mean", or "pooler" where the encoder has one.
            id2label: {index: label name}, kept in the configuration.
            **head: further keywords of MultiverseHead.

        Returns:
            The model, in the encoder's mode: that of `from_pretrained` is eval.

        Raises:
            ValueError: the encoder has no pooler, or num_labels and id2label do not fit together.
        """
        if isinstance(encoder, (str, Path)):
            encoder = AutoModel.from_pretrained(encoder, trust_remote_code=False)
        if pooling == "pooler" and getattr(encoder, "pooler", None) is None:
            raise ValueError(
                f"{type(encoder).__name__} has no pooler; pass pooling='cls' or pooling='mean'."
            )
        num_labels = num_labels or len(id2label or ())
        if not num_labels or (id2label and set(id2label) != set(range(num_labels))):
            raise ValueError(
                f"num_labels is {num_labels} and id2label is {id2label}; expected num_labels, or "
                "id2label with a name for each index from 0, or both of the same size."
            )
        size = encoder.config.hidden_size
        shape = {
            "hidden_size": size,
            "num_labels": num_labels,
            "num_heads": size if num_heads is None else num_heads,
        }
        shape = {name: int(value) for name, value in shape.items()}  # also converts numpy numbers
        labels = label_names([id2label[i] for i in range(num_labels)]) if id2label else {}
        config = MultiverseConfig(
            encoder.config.to_dict(),
            {**shape, "pooling": pooling, **head},
            num_labels=int(num_labels),
            **labels,
        )
        model = cls(config, encoder)
        model.head.to(encoder.device)
        return model.train(encoder.training)

    def resize_token_embeddings(self, *arguments, **options):
        """Resize the encoder's word table, and note the size in the encoder's configuration.

        Args:
            *arguments: see transformers.PreTrainedModel.resize_token_embeddings.
            **options: see the same.

        Returns:
            The new table.
        """
        return self.encoder.resize_token_embeddings(*arguments, **options)

    def save_pretrained(self, save_directory, **options):
        """Write the model with the encoder's present configuration.

        Args:
            save_directory: the folder.
            **options: see transformers.PreTrainedModel.save_pretrained.
        """
        self.config.encoder = self.encoder.config.to_dict()
        super().save_pretrained(save_directory, **options)

    def _init_weights(self, module):
        """Do nothing: the encoder brings its weights, and the head initialises its own."""

    def forward(
        self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, **inputs
    ):
        """Compute logits, and with labels the loss.

        Args:
            input_ids: [B, T].
            attention_mask: [B, T].
            token_type_ids: [B, T].
            labels: [B]; scores also [B, 1].
            **inputs: further inputs of the encoder.

        Returns:
            SequenceClassifierOutput with loss, logits [B, C], and the encoder's hidden_states and
            attentions where they were asked for; a tuple with return_dict=False.
        """
        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
        }
        given = {name: value for name, value in given.items() if value is not None}
        whole = inputs.pop("return_dict", None) is not False
        out = self.encoder(**given, **inputs, return_dict=True)
        hidden_states = out.last_hidden_state
        if attention_mask is None:
            attention_mask = torch.ones(hidden_states.shape[:2], device=hidden_states.device)
        kind = "regression" if self.head.num_labels == 1 else "classification"
        task = SimpleNamespace(kind=kind)
        if labels is not None:
            labels = labels.reshape(-1)  # scores may come as [B, 1]
        batch = SimpleNamespace(attention_mask=attention_mask, task=task, labels=labels)
        x = sentence_vector(out, batch, self.head.pooling).to(self.head.weight.dtype)
        more = {name: getattr(out, name, None) for name in ("hidden_states", "attentions")}
        found = SequenceClassifierOutput(logits=self.head(x), **more)
        if labels is None:
            return found if whole else found.to_tuple()
        if self.training:
            loss, penalty = self.head.loss((x,), batch), self.head.penalty()
            self.per_head = loss.per_head
            total = loss.total if penalty is None else loss.total + penalty
        else:
            total = data_loss(found.logits, batch)
        found = SequenceClassifierOutput(loss=total, logits=found.logits, **more)
        return found if whole else found.to_tuple()


AutoModelForSequenceClassification.register(
    MultiverseConfig, MultiverseForSequenceClassification, exist_ok=True
)
